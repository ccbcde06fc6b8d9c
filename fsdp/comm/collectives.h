// Collectives: what FSDP asks of a network, enqueued on a lane of a Device. The call returns at once; completion is an
// event recorded on the lane. One communicator runs its calls in issue order, whatever lanes they came from.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

// Which ranks take part, and which queue serialises the call: those of equal communicators run in issue order.
struct Communicator {
  enum Role : std::uint8_t {
    kShard,          // a group of consecutive ranks: all-gathers, and reduce-scatters unless they have their own
    kReduceScatter,  // the same group, a second communicator (`reduce_scatter_communicator: own`)
    kReplica,        // across those groups: the ranks that have the same place in theirs (hybrid)
  };
  Role role = kShard;
  int ranks = 0;  // of a group; 0: all ranks, who are one group

  constexpr Communicator(Role of = kShard, int group = 0) : role(of), ranks(group) {}
  friend constexpr bool operator==(Communicator, Communicator) = default;

  // Is this the first communicator of a group that is smaller than the world? Neither the world's communicator, nor a
  // group's second one, nor one across groups is.
  constexpr bool is_group() const { return role == kShard && ranks > 0; }

  // A world of `world` ranks falls into disjoint sets; the members of a set call each collective together. size() says
  // how many ranks a set has, set_of() in which set a rank is, place_of() at which place of its set it stands, and
  // members() lists the ranks of its set.
  constexpr int size(int world) const { return role == kReplica ? world / group(world) : group(world); }
  constexpr int set_of(int rank, int world) const {
    return role == kReplica ? rank % group(world) : rank / group(world);
  }
  constexpr int place_of(int rank, int world) const {
    return role == kReplica ? rank / group(world) : rank % group(world);
  }
  std::vector<int> members(int rank, int world) const {
    std::vector<int> all;
    const int step = role == kReplica ? group(world) : 1;
    const int first = rank - place_of(rank, world) * step;
    for (int i = 0; i < size(world); ++i) all.push_back(first + i * step);
    return all;
  }

 private:
  constexpr int group(int world) const { return ranks > 0 ? ranks : world; }
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Communicator communicator;
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
  virtual int group_size(Communicator c) const { return c.size(world()); }

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
