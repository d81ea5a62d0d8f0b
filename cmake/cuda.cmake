# Code for GPUs, according to RINGTRAIN_CUDA: off, it is left out; on, nvcc compiles it; emulated, the C++ compiler
# does, with tests/cuda_emulator, which runs kernels, streams, and copies on the CPU so that all of it is tested without
# a GPU.

if(RINGTRAIN_CUDA STREQUAL "on")
  # The driver compiles virtual sm_80 for any newer GPU, when a program first starts; Hopper gets its own machine code.
  # The preset cuda-all also names machine code for other cards.
  set(RINGTRAIN_CUDA_ARCHITECTURES 80-virtual 90-real CACHE STRING "GPUs that get machine code (CMake's notation)")
  set(CMAKE_CUDA_ARCHITECTURES ${RINGTRAIN_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc supports it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE_DIR)  # the first call loads the library: parallel/nccl/nccl_library.cpp
    set(RINGTRAIN_NCCL ON)
  else()
    message(STATUS "No NCCL: all ranks with GPUs are threads of one process")
  endif()
elseif(RINGTRAIN_CUDA STREQUAL "emulated")
  # NCCL is also emulated, by a library that programs load like NCCL itself; it uses the emulator within them.
  set(RINGTRAIN_NCCL ON)
  set(CMAKE_ENABLE_EXPORTS ON)
  list(APPEND CMAKE_BUILD_RPATH ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/emulated_nccl)
  # DT_RPATH, not RUNPATH, which only counts for the program's own dlopen, and a sanitizer inserts its own before it.
  add_link_options(-Wl,--disable-new-dtags)
endif()

# ringtrain_cuda_sources(FLOOR VARIABLE): selects the floor's sources that this build compiles.
function(ringtrain_cuda_sources floor variable)
  set(sources ${${variable}})
  if(RINGTRAIN_CUDA STREQUAL "off")
    foreach(source ${sources})  # by their path within the floor: the checkout itself may be in a folder of that name
      file(RELATIVE_PATH place ${PROJECT_SOURCE_DIR}/${floor} ${source})
      if(place MATCHES "(^|/)cuda/")
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  else()
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${floor}/*.cu)
    if(RINGTRAIN_CUDA STREQUAL "emulated")
      ringtrain_emulated_sources(${kernels})
    else()
      ringtrain_hopper_objects(${floor} kernels)
    endif()
    list(APPEND sources ${kernels})
  endif()
  if(NOT RINGTRAIN_NCCL)
    list(FILTER sources EXCLUDE REGEX "/nccl_(communicator|rank|library)\\.cpp$")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# ringtrain_hopper_objects(FLOOR VARIABLE): compiles the .cu files below hopper/ for sm_90a, because only it has wgmma
# and setmaxnreg, and replaces them in the list by their objects.
function(ringtrain_hopper_objects floor variable)
  set(kernels ${${variable}})
  set(hopper ${kernels})
  list(FILTER hopper INCLUDE REGEX "/hopper/")
  list(FILTER kernels EXCLUDE REGEX "/hopper/")
  if(hopper)
    add_library(ringtrain_${floor}_hopper OBJECT ${hopper})
    set_target_properties(ringtrain_${floor}_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_link_libraries(ringtrain_${floor}_hopper PRIVATE ringtrain_options)
    list(APPEND kernels $<TARGET_OBJECTS:ringtrain_${floor}_hopper>)
  endif()
  set(${variable} ${kernels} PARENT_SCOPE)
endfunction()

# ringtrain_bounded_kernels(): the kernels that wait, compiled with bounded waits (kernels/cuda/bounded_wait.cuh), as
# object libraries, ringtrain_bounded_kernels and, with nvcc, ringtrain_bounded_kernels_hopper. A linker takes objects
# before archives, so they replace those of the floor in a program that has them.
function(ringtrain_bounded_kernels)
  set(folder ${PROJECT_SOURCE_DIR}/kernels/cuda)
  set(kernels ${folder}/bounded_wait.cu ${folder}/attention/attention_mma_backward.cu
              ${folder}/attention/hopper/attention_forward.cu ${folder}/attention/hopper/attention_backward.cu)
  if(RINGTRAIN_CUDA STREQUAL "emulated")
    ringtrain_emulated_sources(${kernels})
  else()
    ringtrain_hopper_objects(bounded_kernels kernels)
    list(FILTER kernels EXCLUDE REGEX "TARGET_OBJECTS")
    target_compile_definitions(ringtrain_bounded_kernels_hopper PRIVATE RINGTRAIN_BOUNDED_WAITS=1)
  endif()
  add_library(ringtrain_bounded_kernels OBJECT ${kernels})
  target_compile_definitions(ringtrain_bounded_kernels PRIVATE RINGTRAIN_BOUNDED_WAITS=1)
  target_link_libraries(ringtrain_bounded_kernels PUBLIC ringtrain_framework PRIVATE ringtrain_options)
endfunction()

# ringtrain_emulated_sources(FILES...): lets the C++ compiler take these .cu files. It considers registers uninitialized
# that a thread fills and uses under the same condition. Nothing is vectorized: it would not help in the code of a
# single thread, and GCC 12 loses additions in loops over such registers (embedding.cu at -O3). Products and sums are
# contracted, as nvcc does by default.
function(ringtrain_emulated_sources)
  set(options -x c++ -Wno-unknown-pragmas -Wno-uninitialized -Wno-maybe-uninitialized -O2 -fno-tree-vectorize -mfma
      -ffp-contract=fast)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}")
endfunction()

# ringtrain_cuda_options(): the options with which code is compiled and linked in such a build: that of users, too
# (ringtrain_usage), or only our own (ringtrain_options).
function(ringtrain_cuda_options)
  target_compile_definitions(ringtrain_options INTERFACE
    RINGTRAIN_CUDA=$<NOT:$<STREQUAL:${RINGTRAIN_CUDA},off>> RINGTRAIN_NCCL=$<BOOL:${RINGTRAIN_NCCL}>)
  if(RINGTRAIN_CUDA STREQUAL "off")
    return()
  endif()
  if(RINGTRAIN_BOUNDED_WAITS)
    target_compile_definitions(ringtrain_options INTERFACE RINGTRAIN_BOUNDED_WAITS=1)
  endif()
  if(RINGTRAIN_CUDA STREQUAL "on")
    # fmt 9 takes nvcc for a compiler without constexpr, and then its own consteval functions do not compile.
    target_compile_definitions(ringtrain_usage INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
    target_compile_options(ringtrain_options INTERFACE
      $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>
      # Line numbers for compute-sanitizer and profilers; the code does not change.
      $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;--compress-mode=size>)
    target_link_libraries(ringtrain_usage INTERFACE CUDA::cudart_static CUDA::cublasLt)
    if(RINGTRAIN_NCCL)
      target_include_directories(ringtrain_options SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
    endif()
  endif()
  if(RINGTRAIN_NCCL)
    target_link_libraries(ringtrain_usage INTERFACE ${CMAKE_DL_LIBS})
  endif()
endfunction()
