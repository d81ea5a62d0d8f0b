# The libraries for use in other projects: targets ringtrain::ring, ::layers, ::data, and ::train, whether this project
# is installed (find_package, pkg-config) or included (add_subdirectory, FetchContent). docs/library.md explains this to
# users.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The targets of each component, by the name that users see.
set(ringtrain_components ring data layers train)
set(ringtrain_ring usage framework kernels ring)
set(ringtrain_data data)
set(ringtrain_layers layers)
set(ringtrain_train reference train)

foreach(component ${ringtrain_components})
  foreach(name ${ringtrain_${component}})
    set(target ringtrain_${name})
    if(name STREQUAL "ring")
      set(target ringtrain_parallel)
    endif()
    add_library(ringtrain::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    list(APPEND ringtrain_targets_${component} ${target})
  endforeach()
endforeach()

# Here, headers include each other from the checkout's root. Other projects see them as they are installed.
set(ringtrain_headers ${PROJECT_BINARY_DIR}/include)
set(ringtrain_copy_headers -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${ringtrain_headers}
    -P ${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake)
if(PROJECT_IS_TOP_LEVEL)
  target_include_directories(ringtrain_usage INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
else()
  execute_process(COMMAND ${CMAKE_COMMAND} ${ringtrain_copy_headers} COMMAND_ERROR_IS_FATAL ANY)
  target_include_directories(ringtrain_usage SYSTEM INTERFACE $<BUILD_INTERFACE:${ringtrain_headers}>)
endif()
target_include_directories(ringtrain_usage INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

if(NOT RINGTRAIN_INSTALL)
  return()
endif()

if(RINGTRAIN_PROGRAMS)
  # Only one name in bin; the names of the others are too common.
  file(RELATIVE_PATH ringtrain_libexec /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBEXECDIR}/ringtrain)
  target_compile_definitions(ringtrain PRIVATE "RINGTRAIN_LIBEXEC=\"${ringtrain_libexec}\"")
  install(TARGETS ringtrain RUNTIME)
  if(ringtrain_extras)
    install(TARGETS ${ringtrain_extras} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ringtrain)
  endif()
  install(PROGRAMS scripts/launch DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ringtrain)
  file(RELATIVE_PATH ringtrain_bin /${CMAKE_INSTALL_LIBEXECDIR}/ringtrain /${CMAKE_INSTALL_BINDIR}/ringtrain)
  foreach(command ${ringtrain_commands})
    install(CODE "file(CREATE_LINK ${ringtrain_bin} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}/ringtrain/${command}\" SYMBOLIC)")
  endforeach()
  install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/ringtrain PATTERN hardware EXCLUDE)
  install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
  install(DIRECTORY configs/hardware/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ringtrain/hardware)
  install(FILES scripts/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME ringtrain)
endif()
if(RINGTRAIN_CUDA STREQUAL "emulated")
  message(STATUS "The emulator of a GPU is for tests: only the programs of this build can be installed")
  return()
endif()

foreach(component ${ringtrain_components})
  install(TARGETS ${ringtrain_targets_${component}} EXPORT ringtrain-${component})
  install(EXPORT ringtrain-${component} FILE ringtrain-${component}.cmake NAMESPACE ringtrain::
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ringtrain)
endforeach()
string(REPLACE ";" "\" \"" ringtrain_arguments "${ringtrain_copy_headers}")
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"${ringtrain_arguments}\" COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${ringtrain_headers}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(ringtrain_config ${PROJECT_BINARY_DIR}/generated/ringtrainConfig.cmake)
configure_package_config_file(cmake/ringtrainConfig.cmake.in ${ringtrain_config}
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ringtrain NO_SET_AND_CHECK_MACRO)
# Before 1.0, a minor version may change the public interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/ringtrainConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${ringtrain_config} ${PROJECT_BINARY_DIR}/generated/ringtrainConfigVersion.cmake
        cmake/text_libraries.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ringtrain)

# pkg-config: everything at once.
file(RELATIVE_PATH ringtrain_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(ringtrain_foreign_libraries ${HDF5_LIBRARIES})
if(MPI_C_FOUND)
  list(APPEND ringtrain_foreign_libraries ${MPI_C_LIBRARIES})
endif()
if(NOT RINGTRAIN_CUDA STREQUAL "off")
  list(APPEND ringtrain_foreign_libraries ${CUDA_cudart_static_LIBRARY} ${CUDA_cublasLt_LIBRARY} -lrt)
endif()
if(RINGTRAIN_SANITIZE)
  list(APPEND ringtrain_foreign_libraries -fsanitize=${RINGTRAIN_SANITIZE})
endif()
list(REMOVE_DUPLICATES ringtrain_foreign_libraries)
string(REPLACE ";" " " ringtrain_foreign_libraries "${ringtrain_foreign_libraries}")
configure_file(cmake/ringtrain.pc.in ${PROJECT_BINARY_DIR}/generated/ringtrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/ringtrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
