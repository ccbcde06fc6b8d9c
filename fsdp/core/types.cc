#include "fsdp/core/types.h"

namespace fsdp {

std::string_view name_of(Dtype d) { return d == Dtype::kFloat32 ? "fp32" : "bf16"; }

std::string_view name_of(Pass p) {
  switch (p) {
    case Pass::kNone:
      return "none";
    case Pass::kForward:
      return "forward";
    case Pass::kBackward:
      return "backward";
    case Pass::kOptimizer:
      return "optimizer";
  }
  return "?";
}

std::string_view name_of(Lane l) {
  switch (l) {
    case Lane::kHost:
      return "host";
    case Lane::kCompute:
      return "compute";
    case Lane::kAllGather:
      return "all-gather";
    case Lane::kReduceScatter:
      return "reduce-scatter";
    case Lane::kAllReduce:
      return "all-reduce";
  }
  return "?";
}

std::string_view name_of(CollectiveKind k) {
  switch (k) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name_of(Strategy s) {
  switch (s) {
    case Strategy::kFullShard:
      return "full_shard";
    case Strategy::kShardGradOp:
      return "shard_grad_op";
    case Strategy::kNoShard:
      return "no_shard";
    case Strategy::kHybridShard:
      return "hybrid_shard";
    case Strategy::kHybridShardZero2:
      return "hybrid_shard_zero2";
  }
  return "?";
}

}  // namespace fsdp
