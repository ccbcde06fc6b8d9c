// Collectives: what FSDP asks of a network, enqueued on a lane of a Device. The call returns at once; completion is an
// event recorded on the lane. One communicator runs its calls in issue order, whatever lanes they came from.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

// Which ranks take part, and which queue serialises the call.
enum class Communicator : std::uint8_t {
  kShard,          // the shard group: all-gathers, and reduce-scatters unless they have their own
  kReduceScatter,  // the shard group again, a second communicator (`reduce_scatter_communicator: own`)
  kReplica,        // across shard groups (hybrid)
  kWorld,
  kRegather,  // a smaller group inside the shard group (reshard_after_forward by a group size)
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Communicator communicator = Communicator::kShard;
  UnitId unit = kNoUnit;
  Pass pass = Pass::kNone;
  Dtype in_dtype = Dtype::kFloat32;
  Dtype out_dtype = Dtype::kFloat32;
  // all_gather: in = this rank's shard (count elements), out = full buffer (group * count)
  // reduce_scatter: in = full buffer (group * count), out = this rank's part (count), out = scale * sum, in rank order
  // all_reduce: in = out = count elements, scale * sum in rank order
  // Null pointers in the virtual world.
  const void* in = nullptr;
  void* out = nullptr;
  Count count = 0;
  bool accumulate = false;  // reduce_scatter, all_reduce: add to `out` instead of overwriting it
  // reduce_scatter that does not accumulate: `count` elements that join scale * sum before it is rounded.
  const float* addend = nullptr;
  float scale = 1.0f;
};

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual int group_size(Communicator c) const = 0;

  // Enqueues on the lane. Never blocks, never throws for what peers do: that poisons the lane.
  virtual void enqueue(Lane lane, const CollectiveCall& call) = 0;

  // Host-side: every rank gives a value and gets everybody's, in rank order. Blocks, with the deadline of the world.
  // Used for agreement (hashes), start-up, barriers between repetitions; never inside a step but at its end.
  virtual std::vector<std::uint64_t> exchange(std::uint64_t value) = 0;

  // Memory that peers can read without a copy where the transport has such (shared memory); else plain memory.
  // 128-byte aligned. Not counted: the caller counts. The virtual world returns null.
  virtual void* allocate(Bytes n) = 0;
  virtual void release(void* p) noexcept = 0;
};

}  // namespace fsdp
