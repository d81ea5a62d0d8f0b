# For scripts/package: every library except glibc is linked from its archive, so that a program runs where none of them
# is installed. The presets of the package include this file at project().
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
find_package(yaml-cpp REQUIRED)
find_library(YAML_CPP_ARCHIVE yaml-cpp REQUIRED)
foreach(config NONE RELEASE)
  set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION_${config} ${YAML_CPP_ARCHIVE})
endforeach()

# Debian's HDF5 can read from clouds, which requires libcurl with about twenty libraries. Nothing here uses that.
find_path(HDF5_ARCHIVE_INCLUDE_DIR hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(HDF5_ARCHIVE hdf5 PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(SZ_ARCHIVE sz REQUIRED)
find_library(AEC_ARCHIVE aec REQUIRED)
find_library(Z_ARCHIVE z REQUIRED)
add_library(ringtrain_no_cloud STATIC cmake/no_cloud.c)
add_library(HDF5::HDF5 INTERFACE IMPORTED)
target_include_directories(HDF5::HDF5 INTERFACE ${HDF5_ARCHIVE_INCLUDE_DIR})
target_link_libraries(HDF5::HDF5 INTERFACE ${HDF5_ARCHIVE} ringtrain_no_cloud ${SZ_ARCHIVE} ${AEC_ARCHIVE} ${Z_ARCHIVE} m)

# Debian has no archive of fmt: its headers contain all of it, and the linker drops the unused library.
add_compile_definitions(FMT_HEADER_ONLY=1)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed)
