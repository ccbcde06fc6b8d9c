#include "fsdp/core/errors.h"
#include "harness/sweep/cuda_support.h"

namespace harness {

bool built_with_cuda() { return false; }
bool cuda_runs_here() { return false; }

void require_cuda() {
  throw fsdp::EnvironmentError(
      "[device] this shardscope is built without CUDA; build it with the preset cuda, or use --device cpu, or --device "
      "virtual to predict a GPU node");
}

}  // namespace harness
