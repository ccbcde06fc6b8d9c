// Whether this build and this machine have a CUDA world. One of two files is built: with_cuda.cc, no_cuda.cc.
#pragma once

namespace harness {

bool built_with_cuda();
// Throws fsdp::EnvironmentError with the remedy: built without, no driver, no GPU.
void require_cuda();
bool cuda_runs_here();

}  // namespace harness
