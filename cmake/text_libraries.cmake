# What data/ needs to read text: Unicode's tables (utf8proc), patterns that no scanner of ours knows (PCRE2), and
# compressed files (zlib, Zstandard).
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_package(ZLIB REQUIRED)

add_library(ringtrain_text_libraries INTERFACE)
target_include_directories(ringtrain_text_libraries SYSTEM INTERFACE
  ${UTF8PROC_INCLUDE_DIR} ${PCRE2_INCLUDE_DIR} ${ZSTD_INCLUDE_DIR})
target_link_libraries(ringtrain_text_libraries INTERFACE
  ${UTF8PROC_LIBRARY} ${PCRE2_LIBRARY} ${ZSTD_LIBRARY} ZLIB::ZLIB)
