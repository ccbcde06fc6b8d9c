#include "harness/sweep/cuda_support.h"
#include "harness/trial/rank_backend.h"

namespace harness {

std::unique_ptr<RankBackend> make_cuda_backend(const RankJob&, const fsdp::UnitPlan&, fsdp::RangeSink*,
                                               RankSurroundings) {
  require_cuda();  // throws: built without
  return nullptr;
}

}  // namespace harness
