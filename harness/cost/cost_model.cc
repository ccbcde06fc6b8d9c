#include "harness/cost/cost_model.h"

#include <algorithm>
#include <cmath>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

fsdp::Nanos nanos(double us) { return static_cast<fsdp::Nanos>(std::llround(us * 1e3)); }
int up(int a, int b) { return (a + b - 1) / b; }

const char* name_of(OpKind k) {
  switch (k) {
    case OpKind::kAttention:
      return "attention";
    case OpKind::kElementwiseBackward:
      return "elementwise_backward";
    case OpKind::kOptimizer:
      return "optimizer";
    case OpKind::kCopy:
      return "copy";
    case OpKind::kCopyOut:
      return "copy_out";
    default:
      return "elementwise";
  }
}

// The curve of the fewest devices that are enough, else of the most.
const CollectiveCurve& curve_for(const std::vector<CollectiveCurve>& curves, int devices) {
  for (const CollectiveCurve& c : curves)
    if (c.devices >= devices) return c;
  return curves.back();
}

}  // namespace

double cold_share(const Hardware& h, double bytes) {
  return h.cache_mib > 0 && bytes > 0 ? std::max(0.0, 1 - h.cache_mib * kGib / 1024 / bytes) : 0;
}

double step_bytes(fsdp::Count parameters, int ranks) {
  return static_cast<double>(parameters) * sizeof(float) * (2 * ranks + 4);
}

double op_time_us(const OpCost& c, double flops, double bytes, double cold) {
  const double t0 = c.t0_us + (c.cold_gb_s > 0 ? cold * bytes / (c.cold_gb_s * 1e3) : 0);
  const double f = c.tflops > 0 ? flops / (c.tflops * 1e6) : 0, b = c.gb_s > 0 ? c.traffic * bytes / (c.gb_s * 1e3) : 0;
  if (f == 0 || b == 0) return t0 + f + b;
  const double most = std::max(f, b);
  return t0 + most * std::pow(std::pow(f / most, c.p) + std::pow(b / most, c.p), 1 / c.p);
}

GroupShape Topology::shard(int group) const {
  const int node = node_devices > 0 ? node_devices : world;
  const int per_node = std::min(group, node);
  const int groups_on_a_node = std::min(node, world) / std::max(1, per_node);
  const int nodes = up(group, node);
  return {group, per_node, nodes, nodes > 1 ? std::max(1, groups_on_a_node) - 1 : 0};
}

GroupShape Topology::replica(int group) const {
  const int node = node_devices > 0 ? node_devices : world;
  const int ranks = world / std::max(1, group);
  const int per_node = std::max(1, std::min(ranks, node / std::max(1, group)));
  return {ranks, per_node, up(ranks, per_node), std::min(group, node) - 1};
}

CostModel::CostModel(Hardware hardware, Topology topology)
    : hardware_(std::move(hardware)), topology_(std::move(topology)) {}

const OpCost& CostModel::cost_of(std::string_view name, const OpWork& work) const {
  const auto find = [&](const std::string& key) {
    const auto at = hardware_.ops.find(key);
    return at == hardware_.ops.end() ? nullptr : &at->second;
  };
  if (const OpCost* own = find(std::string(name))) return *own;
  if (work.kind == OpKind::kGemm) {
    if (const OpCost* c = find(work.half ? "gemm_bf16" : "gemm_fp32")) return *c;
    if (const OpCost* c = find("linear"); c && !work.half) return *c;
    throw fsdp::ConfigError("[hardware] " + hardware_.name + " has no rate for " + (work.half ? "bf16" : "fp32") +
                            " products; use param_dtype " + (work.half ? "fp32" : "bf16") + ", or other hardware");
  }
  if (const OpCost* c = find(name_of(work.kind))) return *c;
  if (const OpCost* c = find("copy"); c && work.kind == OpKind::kCopyOut) return *c;
  if (const OpCost* c = find("elementwise")) return *c;
  throw fsdp::ConfigError("[hardware] " + hardware_.name + " has no cost for elementwise work; give ops.elementwise");
}

fsdp::Nanos CostModel::op(std::string_view name, const OpWork& work) const {
  if (work.kind == OpKind::kFree) return 0;
  const OpCost& c = cost_of(name, work);
  double us = 0;
  for (const OpPart& p : work.parts) us += op_time_us(c, p.flops, p.bytes, cold_);
  return nanos(work.kind == OpKind::kGemm ? us / hardware_.gemm_efficiency : us);
}

fsdp::Nanos CostModel::gaps(const OpWork& work) const { return nanos(hardware_.kernel_us * work.kernels); }

fsdp::Nanos CostModel::launch(const OpWork& work) const { return nanos(hardware_.launch_us * work.kernels); }

// Latency of a ring over nodes, beyond that of one inside a node.
double CostModel::across_us(const GroupShape& g) const {
  if (g.nodes <= 1) return 0;
  const Network& n = topology_.network;
  return n.alpha_us + (g.nodes - 1) * (n.alpha_per_node_us + (g.per_node - 1) * n.alpha_per_rank_us);
}

double CostModel::one_way(const std::vector<CollectiveCurve>& curves, double sent, const GroupShape& g) const {
  const CollectiveCurve& c = curve_for(curves, g.per_node > 1 || g.nodes == 1 ? g.per_node : 2);
  double alpha = c.alpha_us, gb_s = c.gb_s;
  if (g.nodes > 1) {
    const Network& n = topology_.network;
    const double across = n.efficiency * n.node_gb_s / (1 + g.beside);
    gb_s = g.per_node > 1 ? std::min(gb_s, across) : across;
    alpha += across_us(g);
  }
  return std::max(c.floor_us, alpha + c.root_us * std::sqrt(sent) + sent / (gb_s * 1e3));
}

fsdp::Nanos CostModel::collective(fsdp::CollectiveKind kind, double full, const GroupShape& g) const {
  if (g.ranks <= 1) return 0;
  const double sent = full * (g.ranks - 1) / g.ranks;
  switch (kind) {
    case fsdp::CollectiveKind::kAllGather:
      return nanos(one_way(hardware_.all_gather, sent, g));
    case fsdp::CollectiveKind::kReduceScatter:
      return nanos(one_way(hardware_.reduce_scatter, sent, g));
    case fsdp::CollectiveKind::kAllReduce:
      if (!hardware_.all_reduce.empty()) return nanos(one_way(hardware_.all_reduce, 2 * sent, g));
      return nanos(one_way(hardware_.all_gather, sent, g) + one_way(hardware_.reduce_scatter, sent, g));
    case fsdp::CollectiveKind::kBroadcast:
      return nanos(one_way(hardware_.all_gather, full, g));
    case fsdp::CollectiveKind::kBarrier:
      return nanos(one_way(hardware_.all_gather, 0, g));
  }
  return 0;
}

fsdp::Nanos CostModel::contending(fsdp::CollectiveKind kind, double full, const GroupShape& g) const {
  const int node = topology_.node_devices > 0 ? topology_.node_devices : g.ranks;
  const fsdp::Nanos inside = collective(kind, full, {g.ranks, std::min(g.ranks, node), 1, 0});
  return g.ranks > 1 ? std::min(inside + nanos(across_us(g)), collective(kind, full, g)) : 0;
}

MemoryExtras CostModel::memory_extras(int communicators) const {
  const auto bytes = [](double gib) { return static_cast<fsdp::Bytes>(gib * kGib); };
  return {bytes(hardware_.context_gib), communicators * bytes(hardware_.communicator_gib),
          bytes(hardware_.workspace_gib)};
}

fsdp::Bytes CostModel::memory_for_tensors(int communicators) const {
  if (hardware_.usable_gib == 0) return 0;
  return static_cast<fsdp::Bytes>(hardware_.usable_gib * kGib) - memory_extras(communicators).total();
}

CostModel make_cost_model(const std::string& name, int world, int ranks_per_node, const std::string& network) {
  return make_cost_model(load_hardware(name), name, world, ranks_per_node, network);
}

CostModel make_cost_model(Hardware h, const std::string& name, int world, int ranks_per_node,
                          const std::string& network) {
  Topology t;
  t.world = world;
  t.node_devices = ranks_per_node > 0 ? ranks_per_node : h.node_devices;
  const std::string known = network.empty() ? h.network : network;
  if (!known.empty()) t.network = load_network(known);
  if (t.node_devices > 0 && world > t.node_devices && known.empty()) {
    throw fsdp::ConfigError("[network] " + std::to_string(world) + " ranks span nodes of " +
                            std::to_string(t.node_devices) + ", and " + name +
                            " names no network; set network, for instance to " + network_presets().front());
  }
  return {std::move(h), std::move(t)};
}

}  // namespace harness
