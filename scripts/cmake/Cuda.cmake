# What -DSHARDSCOPE_CUDA=ON needs: LibTorch with CUDA and NCCL, nvcc of the same major version. Asked for and not there is an error.
if(NOT SHARDSCOPE_TORCH)
  message(FATAL_ERROR "The CUDA world needs LibTorch; configure with -DSHARDSCOPE_TORCH=ON, or without SHARDSCOPE_CUDA.")
endif()
if(NOT TARGET LibTorch::cuda OR NOT TARGET LibTorch::nccl OR NOT TARGET LibTorch::cudart)
  message(FATAL_ERROR "The LibTorch at ${LibTorch_ROOT_DIR} has no CUDA part; install the full wheel (scripts/dependencies --full) and pass "
                      "-DPython3_EXECUTABLE=<its python>, or configure without SHARDSCOPE_CUDA.")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "GPU architectures of our kernels")   # A100, H100/H200, B200
endif()
find_program(SHARDSCOPE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH /usr/local/cuda/bin PATH_SUFFIXES bin)
if(NOT SHARDSCOPE_NVCC)
  message(FATAL_ERROR "No nvcc; install the CUDA ${LibTorch_CUDA_VERSION} toolkit (cuda-nvcc, cuda-cudart-dev) and put its bin on PATH, or pass "
                      "-DCMAKE_CUDA_COMPILER=<nvcc>, or configure without SHARDSCOPE_CUDA.")
endif()
set(CMAKE_CUDA_COMPILER "${SHARDSCOPE_NVCC}" CACHE FILEPATH "nvcc")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)   # one cudart per process: LibTorch's
enable_language(CUDA)
# CMake 3.25 does not know how nvcc spells C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; LibTorch has CUDA ${LibTorch_CUDA_VERSION}")
