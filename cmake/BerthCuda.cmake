# CUDA: the toolkit's headers, which the emulation in tests/emulation needs, and with BERTH_CUDA the compiler.
#
# berth_cuda_backend(<name> <library of kernels> <source of LoadCublasLt>): the backend in src/runner/cuda as a static
# library berth_<name>, against NVIDIA's runtime or the stand-in for it in tests/emulation.
#
# berth_cuda_kernels(NAME <name> SRCS <file.cu> ...): a static library berth_<name> of kernels for the architectures below.
# A register that spills to memory is an error.
set(BERTH_CUDA_ARCHITECTURES 90a CACHE STRING "Compute capabilities that CUDA kernels are built for: 80, 89, 90a")
set(BERTH_CUDA_HEAD_DIMS "64;80;96;128;256" CACHE STRING "Head dimensions that the tuned attention kernels are built for")

# For kernels/cuda/head_dim_choice.h.
set(BERTH_CUDA_HEAD_DIM_BITS 0)
foreach(head_dim IN LISTS BERTH_CUDA_HEAD_DIMS)
  if(NOT head_dim MATCHES "^(64|80|96|128|256)$")
    message(FATAL_ERROR "BERTH_CUDA_HEAD_DIMS: '${head_dim}' is none of 64, 80, 96, 128 and 256")
  endif()
  math(EXPR BERTH_CUDA_HEAD_DIM_BITS "${BERTH_CUDA_HEAD_DIM_BITS} | (1 << (${head_dim} / 16))" OUTPUT_FORMAT HEXADECIMAL)
endforeach()

find_package(CUDAToolkit 13 QUIET)
set(BERTH_CUDA_HEADERS "${CUDAToolkit_INCLUDE_DIRS}")

if(BERTH_CUDA)
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "BERTH_CUDA needs NVIDIA's CUDA toolkit 13 with nvcc on PATH")
  endif()
  list(TRANSFORM BERTH_CUDA_ARCHITECTURES APPEND -real OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  enable_language(CUDA)
  # CMake 3.25.1 does not know that nvcc has it.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
elseif(BERTH_BUILD_TESTS AND NOT BERTH_CUDA_HEADERS)
  message(STATUS "No CUDA 13 toolkit: the tests that run CUDA kernels on the CPU are left out (docs/dependencies.md)")
endif()

function(berth_cuda_kernels)
  cmake_parse_arguments(ARG "" "NAME" "SRCS" ${ARGN})
  add_library(berth_${ARG_NAME} STATIC ${ARG_SRCS})
  target_include_directories(berth_${ARG_NAME} PUBLIC $<TARGET_PROPERTY:berth_kernels,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(berth_${ARG_NAME} PRIVATE BERTH_CUDA_HEAD_DIM_BITS=${BERTH_CUDA_HEAD_DIM_BITS})
  target_compile_options(berth_${ARG_NAME} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas --warn-on-spills,-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off>")
  target_link_libraries(berth_${ARG_NAME} PUBLIC CUDA::cudart_static)
endfunction()

function(berth_cuda_backend name kernels cublaslt_source)
  set(modules cuda_call cuda_devices cuda_shape cuda_weights decode_graphs forward gemm kv_copies kv_pool products
    sampling_packer step_arrays step_packer step_runner weight_upload workspace)
  set(sources ${modules} cuda_backend ${cublaslt_source})
  list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/src/runner/cuda/")
  list(TRANSFORM sources APPEND ".cc")
  add_library(berth_${name} STATIC ${sources})
  list(JOIN BERTH_CUDA_ARCHITECTURES "," architectures)
  target_compile_definitions(berth_${name} PRIVATE BERTH_CUDA_ARCHITECTURES="${architectures}")
  target_include_directories(berth_${name} SYSTEM PUBLIC ${BERTH_CUDA_HEADERS})
  target_link_libraries(berth_${name} PUBLIC berth_runner ${kernels} PRIVATE absl::strings berth_flags)
  foreach(header IN LISTS modules)
    set_property(GLOBAL APPEND PROPERTY BERTH_HEADERS "runner/cuda/${header}.h|berth_${name}")
  endforeach()
endfunction()
