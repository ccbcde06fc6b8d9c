// CostModel: operators, collectives and the host's work -> nanoseconds, for one rank of a world on some hardware. Pure:
// the same question has the same answer. Plain C++.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "harness/cost/hardware.h"
#include "harness/cost/op_work.h"

namespace harness {

// Which ranks a collective connects: `nodes` nodes with `per_node` of them each, while `beside` other groups of a node
// use its network at the same time.
struct GroupShape {
  int ranks = 1;
  int per_node = 1;
  int nodes = 1;
  int beside = 0;
};

// Ranks stand on nodes in order; a shard group is `group` consecutive ranks, a replica group every `group`-th rank.
struct Topology {
  int world = 1;
  int node_devices = 0;  // 0: all on one node
  Network network;       // across nodes
  GroupShape shard(int group) const;
  GroupShape replica(int group) const;
};

// Bytes of a device that no tensor has.
struct MemoryExtras {
  fsdp::Bytes context = 0, communicators = 0, workspace = 0;
  fsdp::Bytes total() const { return context + communicators + workspace; }
};

// Share of `bytes` that is not in the cache when a step comes by again: those beyond it. 0 without a known cache.
double cold_share(const Hardware& hardware, double bytes);
// Bytes of a step's parameters and gradients in full on every rank, and of the shards of values, gradients and two
// moments.
double step_bytes(fsdp::Count parameters, int ranks);

// The time of OpCost, in microseconds; `cold`: the share s.
double op_time_us(const OpCost& cost, double flops, double bytes, double cold = 0);

class CostModel {
 public:
  CostModel(Hardware hardware, Topology topology);

  // What a step goes through on all ranks of this machine: what the cache cannot hold of it is cold.
  void set_step_bytes(double bytes) { cold_ = cold_share(hardware_, bytes); }

  const Hardware& hardware() const { return hardware_; }
  const Topology& topology() const { return topology_; }

  // On the compute lane. Throws fsdp::ConfigError for 16-bit products on hardware without a rate for them.
  fsdp::Nanos op(std::string_view name, const OpWork& work) const;
  // What its kernels cost the device beside their work.
  fsdp::Nanos gaps(const OpWork& work) const;
  // What the host spends to issue it.
  fsdp::Nanos launch(const OpWork& work) const;
  // `full`: bytes of the whole buffer, in the dtype that travels.
  fsdp::Nanos collective(fsdp::CollectiveKind kind, double full, const GroupShape& group) const;

  // Of that, how long it slows computation beside it as communication inside a node would: for what the same bytes take
  // there, since a slower network is fed by fewer thread blocks, and while it waits for the ring's hops.
  fsdp::Nanos contending(fsdp::CollectiveKind kind, double full, const GroupShape& group) const;

  MemoryExtras memory_extras(int communicators) const;
  // What tensors may have; 0: unknown.
  fsdp::Bytes memory_for_tensors(int communicators) const;

 private:
  const OpCost& cost_of(std::string_view name, const OpWork& work) const;
  double one_way(const std::vector<CollectiveCurve>& curves, double sent, const GroupShape& group) const;
  double across_us(const GroupShape& group) const;

  Hardware hardware_;
  Topology topology_;
  double cold_ = 0;
};

// Hardware and topology from their settings: `network` empty: the hardware's; `ranks_per_node` 0: the hardware's.
// Throws fsdp::ConfigError, also when a world spans nodes and no network is known.
CostModel make_cost_model(const std::string& hardware, int world, int ranks_per_node, const std::string& network);
// `name`: what errors call it.
CostModel make_cost_model(Hardware hardware, const std::string& name, int world, int ranks_per_node,
                          const std::string& network);

}  // namespace harness
