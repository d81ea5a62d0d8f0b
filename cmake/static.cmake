# For scripts/package: every library but glibc is linked from its archive, so that a program runs where none of them is
# installed. The presets of the package include this file at project().
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(HDF5_USE_STATIC_LIBRARIES ON)
find_package(yaml-cpp REQUIRED)
find_library(YAML_CPP_ARCHIVE yaml-cpp REQUIRED)
foreach(config NONE RELEASE)
  set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION_${config} ${YAML_CPP_ARCHIVE})
endforeach()
# Debian has no archive of fmt: its headers hold all of it, and the linker drops the library that nothing uses.
add_compile_definitions(FMT_HEADER_ONLY=1)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed)
