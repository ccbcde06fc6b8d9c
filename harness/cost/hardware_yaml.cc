// Hardware as YAML, as load_hardware reads it back.
#include <fmt/format.h>

#include "fsdp/core/escape.h"
#include "harness/cost/hardware.h"

namespace harness {
namespace {

std::string curves(const std::string& key, const std::vector<CollectiveCurve>& list) {
  if (list.empty()) return "";
  std::string out = "  " + key + ":\n";
  for (const CollectiveCurve& c : list) {
    out += fmt::format("    - {{devices: {}, alpha_us: {}, gb_s: {}, floor_us: {}, root_us: {}}}\n", c.devices,
                       c.alpha_us, c.gb_s, c.floor_us, c.root_us);
  }
  return out;
}

}  // namespace

std::string to_yaml(const Hardware& h) {
  std::string out = fmt::format("version: {}\nname: {}\nkind: {}\nsource: {}\n", kHardwareVersion,
                                fsdp::yaml_string(h.name), h.gpu ? "gpu" : "cpu", fsdp::yaml_string(h.source));
  out += fmt::format("peak_tflops: {{bf16: {}, fp32: {}}}\n", h.peak_bf16_tflops, h.peak_fp32_tflops);
  out += fmt::format(
      "memory: {{usable_gib: {}, context_gib: {}, communicator_gib: {}, workspace_gib: {}, caching_allocator: {}, "
      "cache_mib: {}}}\n",
      h.usable_gib, h.context_gib, h.communicator_gib, h.workspace_gib, h.caching_allocator, h.cache_mib);
  out += fmt::format("node: {{devices: {}, network: {}}}\nops:\n", h.node_devices, fsdp::yaml_string(h.network));
  for (const auto& [name, c] : h.ops) {
    out += fmt::format("  {}: {{t0_us: {}, tflops: {}, gb_s: {}, p: {}, traffic: {}, cold_gb_s: {}}}\n", name, c.t0_us,
                       c.tflops, c.gb_s, c.p, c.traffic, c.cold_gb_s);
  }
  out += "collectives:\n" + curves("all_gather", h.all_gather) + curves("reduce_scatter", h.reduce_scatter) +
         curves("all_reduce", h.all_reduce);
  out += fmt::format("host: {{launch_us: {}, collective_us: {}, unit_pass_us: {}, wake_us: {}, wire_late_us: {}}}\n",
                     h.launch_us, h.collective_us, h.unit_pass_us, h.wake_us, h.wire_late_us);
  out += fmt::format(
      "device: {{gemm_efficiency: {}, kernel_us: {}, optimizer_us: {}, step_us: {}, contention: {}, jitter: {}, "
      "early_stop: {}}}\n",
      h.gemm_efficiency, h.kernel_us, h.optimizer_us, h.step_us, h.contention, h.jitter, h.early_stop);
  if (h.expected_error > 0) {
    out += fmt::format("expected_error: {{median: {}, source: {}}}\n", h.expected_error,
                       fsdp::yaml_string(h.expected_error_source));
  }
  out += "assumed: [";
  for (std::size_t i = 0; i < h.assumed.size(); ++i) out += (i ? ", " : "") + h.assumed[i];
  return out + "]\n";
}

}  // namespace harness
