# What data/ needs to read text: Unicode's tables (utf8proc), the patterns of tokenizers (PCRE2), and compressed files
# (zlib, Zstandard). The target ringtrain::text_libraries. It is also installed: the package's config includes it, to
# find these libraries on the user's machine.
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_package(ZLIB REQUIRED)

if(NOT TARGET ringtrain::text_libraries)
  add_library(ringtrain::text_libraries INTERFACE IMPORTED GLOBAL)
  target_include_directories(ringtrain::text_libraries SYSTEM INTERFACE
    ${UTF8PROC_INCLUDE_DIR} ${PCRE2_INCLUDE_DIR} ${ZSTD_INCLUDE_DIR})
  target_link_libraries(ringtrain::text_libraries INTERFACE
    ${UTF8PROC_LIBRARY} ${PCRE2_LIBRARY} ${ZSTD_LIBRARY} ZLIB::ZLIB)
endif()
