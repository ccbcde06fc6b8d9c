// The small vocabulary of the whole program: units of measure, names of passes, lanes and collectives. Plain C++.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp {

using Nanos = std::int64_t;   // a time or a duration, in nanoseconds; which clock is said where it is made
using Bytes = std::int64_t;   // a size in bytes
using Count = std::int64_t;   // a number of elements
using UnitId = std::int32_t;  // index into UnitPlan::units

inline constexpr UnitId kNoUnit = -1;

enum class Dtype : std::uint8_t { kFloat32, kBFloat16 };
constexpr Bytes size_of(Dtype d) { return d == Dtype::kFloat32 ? 4 : 2; }
std::string_view name_of(Dtype d);  // "fp32", "bf16"

enum class Pass : std::uint8_t { kNone, kForward, kBackward, kOptimizer };
std::string_view name_of(Pass p);  // "none", "forward", "backward", "optimizer"

// In-order queues of one rank. kHost is the thread that issues work; on the host device it is also what computes.
enum class Lane : std::uint8_t { kHost, kCompute, kAllGather, kReduceScatter, kAllReduce };
inline constexpr int kLaneCount = 5;
std::string_view name_of(Lane l);  // "host", "compute", "all-gather", "reduce-scatter", "all-reduce"

enum class CollectiveKind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kBarrier };
std::string_view name_of(CollectiveKind k);  // "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier"

// How a unit's parameters are kept. Hybrid forms shard inside a group and all-reduce across groups.
enum class Strategy : std::uint8_t { kFullShard, kShardGradOp, kNoShard, kHybridShard, kHybridShardZero2 };
std::string_view name_of(
    Strategy s);  // "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"

}  // namespace fsdp
