// Hardware: what a machine costs, as numbers. Read from YAML: a preset that is built in, or a file with the same keys,
// such as the one that `shardscope calibrate` writes. Plain C++.
//
// Units: microseconds, TFLOP/s = 10^12 per second, GB/s = 10^9 bytes per second one way, GiB = 2^30.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

inline constexpr int kHardwareVersion = 1;
// Bounds of contention on a GPU: NCCL's channels take 8 to 24 of its 108 to 132 multiprocessors, and bandwidth.
inline constexpr double kLeastContention = 0.1, kMostContention = 0.4;

// Time of one piece of work of F floating-point operations on B bytes:
//   t0 + ((F/tflops)^p + (traffic*B/gb_s)^p)^(1/p) + s*B/cold_gb_s       p = 1: the sum, large p: the larger one
// with s the share of the step's bytes that the processor's cache cannot hold (cold_share in cost_model.h). A rate of 0
// means that the work has no such part.
struct OpCost {
  double t0_us = 0;
  double tflops = 0;
  double gb_s = 0;
  double p = 1;
  double cold_gb_s = 0;
  double traffic = 1;  // bytes moved for each byte that the operator's arguments and results have

  bool operator==(const OpCost&) const = default;
};

// Collectives over one wire: max(floor, alpha + root*sqrt(w) + w/gb_s), w = bytes a rank sends (ring).
struct CollectiveCurve {
  int devices = 0;
  double alpha_us = 0;
  double gb_s = 0;
  double floor_us = 0;
  double root_us = 0;  // us per square root of a byte

  bool operator==(const CollectiveCurve&) const = default;
};

struct Network {
  std::string name;
  double node_gb_s = 0;  // 0: there is none
  double efficiency = 0.8, efficiency_low = 0.5, efficiency_high = 0.9;
  // Added to the alpha inside a node. A ring passes every member: each further node costs a hop over the network and
  // one for each of its other members.
  double alpha_us = 60, alpha_per_node_us = 14, alpha_per_rank_us = 3.4;
};

struct Hardware {
  std::string name, source;
  bool gpu = true;       // false: the thread that issues work also does it
  double cache_mib = 0;  // the last cache that ranks of a processor share; 0: what is cold makes no difference
  // Memory of a device that the driver leaves to programs; 0: nobody has said. Outside the allocator: the context, and
  // each communicator.
  double usable_gib = 0, context_gib = 0, communicator_gib = 0, workspace_gib = 0;
  bool caching_allocator = false;
  int node_devices = 0;                               // 0: one node holds them all
  std::string network;                                // preset across nodes; empty: none is known
  double peak_bf16_tflops = 0, peak_fp32_tflops = 0;  // 0: unknown, no MFU
  // By operator name ("linear", "attention_backward"), or by kind: "gemm_bf16", "gemm_fp32", "attention",
  // "elementwise", "optimizer", "copy".
  std::map<std::string, OpCost> ops;
  std::vector<CollectiveCurve> all_gather, reduce_scatter, all_reduce;  // by devices, ascending
  double launch_us = 0;                                                 // of the host, for each kernel
  double collective_us = 0;                                             // of the host, for each collective
  double gemm_efficiency = 1;                                           // of products in a step against products alone
  double unit_pass_us = 0;    // of the host, for each pass over a unit, whatever it computes
  double kernel_us = 0;       // of the device, for each kernel beside its work: its launch and the gap before it
  double optimizer_us = 0;    // of the device, for each step
  double step_us = 0;         // of the device, for each step: what belongs to none of the above
  double wake_us = 0;         // from the end of a collective to the work that waited for it
  double wire_late_us = 0;    // of an emulated wire: how much later than asked it lets its lane go on
  double contention = 0;      // share of a hidden collective's time by which computation becomes longer
  bool early_stop = false;    // a block is computed again up to the last operator whose result backward needs, as
                              // PyTorch's checkpoint does
  double jitter = 0;          // by what share of it the computation of a rank's step varies (standard deviation)
  double expected_error = 0;  // median |predicted/measured - 1| where it was compared; 0: never
  std::string expected_error_source;
  std::vector<std::string> assumed;  // keys whose values nobody has measured

  bool operator==(const Hardware&) const = default;
};

std::vector<std::string> hardware_presets();
std::vector<std::string> network_presets();

// Whether the setting `hardware` is the path of a file.
bool is_hardware_file(const std::string& name);
// A preset's name, or the path of a file (it has a '/' or ends in .yaml or .yml). Throws fsdp::ConfigError: an unknown
// name with the nearest ones; file, line and what would be right for anything else.
Hardware load_hardware(const std::string& name_or_path);
// From text; `place` stands in front of errors.
Hardware parse_hardware(const std::string& yaml, const std::string& place);
// The same keys, as load_hardware reads them.
std::string to_yaml(const Hardware& hardware);

Network load_network(const std::string& name);

}  // namespace harness
