# CUDA: the toolkit's headers, which the emulation in tests/emulation needs, and with BERTH_CUDA the compiler.
#
# berth_cuda_kernels(NAME <name> SRCS <file.cu> ...): a static library berth_<name> of kernels for compute capability 9.0.
# A register that spills to memory is an error.
set(BERTH_CUDA_ARCHITECTURE 90a)

find_package(CUDAToolkit 13 QUIET)
set(BERTH_CUDA_HEADERS "${CUDAToolkit_INCLUDE_DIRS}")

if(BERTH_CUDA)
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "BERTH_CUDA needs NVIDIA's CUDA toolkit 13 with nvcc on PATH")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${BERTH_CUDA_ARCHITECTURE}-real)
  enable_language(CUDA)
elseif(BERTH_BUILD_TESTS AND NOT BERTH_CUDA_HEADERS)
  message(STATUS "No CUDA 13 toolkit: the tests that run CUDA kernels on the CPU are left out (docs/dependencies.md)")
endif()

function(berth_cuda_kernels)
  cmake_parse_arguments(ARG "" "NAME" "SRCS" ${ARGN})
  add_library(berth_${ARG_NAME} STATIC ${ARG_SRCS})
  target_include_directories(berth_${ARG_NAME} PUBLIC $<TARGET_PROPERTY:berth_kernels,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_options(berth_${ARG_NAME} PRIVATE
    # By hand: CMake 3.25.1 does not know that nvcc has C++20.
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas --warn-on-spills,-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off>")
  target_link_libraries(berth_${ARG_NAME} PUBLIC CUDA::cudart_static)
endfunction()
