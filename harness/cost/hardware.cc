#include "harness/cost/hardware.h"

#include <fmt/format.h>

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"
#include "fsdp/plan/nearest.h"
#include "harness/cost/presets.h"
#include "harness/cost/yaml_fields.h"

namespace harness {
namespace {

using cost::Fields;

constexpr const char* kNetworks = "networks";

void read_op(const std::string& name, Fields& f, Hardware& h) {
  OpCost c;
  f.number("t0_us", c.t0_us);
  f.number("tflops", c.tflops);
  f.number("gb_s", c.gb_s);
  f.number("p", c.p);
  f.number("traffic", c.traffic);
  f.number("cold_gb_s", c.cold_gb_s);
  if (c.p < 1) f.fail("p", "is below 1; use 1 for the sum of the two times, more for less of the smaller one");
  if (c.tflops == 0 && c.gb_s == 0 && c.t0_us == 0) f.fail("", "has no cost; give tflops, gb_s or t0_us");
  h.ops[name] = c;
}

void read_curves(Fields& f, const std::string& key, std::vector<CollectiveCurve>& out) {
  f.list(key, [&](Fields& e) {
    CollectiveCurve c;
    e.number("devices", c.devices);
    e.number("alpha_us", c.alpha_us);
    e.number("gb_s", c.gb_s);
    e.number("floor_us", c.floor_us);
    e.number("root_us", c.root_us);
    if (c.devices < 2) e.fail("devices", "is below 2; use the number of devices the curve was taken with");
    if (c.gb_s == 0) e.fail("gb_s", "is 0; use the bandwidth of one device, one way");
    out.push_back(c);
  });
  std::sort(out.begin(), out.end(),
            [](const CollectiveCurve& a, const CollectiveCurve& b) { return a.devices < b.devices; });
}

void read_version(Fields& f) {
  int version = 0;
  f.number("version", version);
  if (version != kHardwareVersion) {
    f.fail("version", "is " + (version == 0 ? "missing or 0" : std::to_string(version)) +
                          "; this shardscope reads version " + std::to_string(kHardwareVersion) +
                          ": run shardscope calibrate again");
  }
}

void read_step(Fields& f, Hardware& h) {
  f.map("host", [&](Fields& g) {
    g.number("launch_us", h.launch_us);
    g.number("collective_us", h.collective_us);
    g.number("unit_pass_us", h.unit_pass_us);
    g.number("wake_us", h.wake_us);
    g.number("wire_late_us", h.wire_late_us);
  });
  f.map("device", [&](Fields& g) {
    g.number("gemm_efficiency", h.gemm_efficiency);
    if (h.gemm_efficiency == 0) g.fail("gemm_efficiency", "is 0; use 1 for products that cost what they cost alone");
    double on_device = 0;  // a key of earlier files, which `calibrate` always wrote as 0
    g.number("unit_pass_us", on_device);
    if (on_device != 0)
      g.fail("unit_pass_us",
             "is no cost of the device; use host.unit_pass_us, or device.kernel_us for what operators cost");
    g.number("kernel_us", h.kernel_us);
    g.number("optimizer_us", h.optimizer_us);
    g.number("step_us", h.step_us);
    g.number("contention", h.contention);
    g.number("jitter", h.jitter);
    g.flag("early_stop", h.early_stop);
  });
  f.map("expected_error", [&](Fields& g) {
    g.number("median", h.expected_error);
    g.text("source", h.expected_error_source);
  });
}

Hardware read_hardware(Fields& f) {
  Hardware h;
  read_version(f);
  std::string kind = "gpu";
  f.text("name", h.name);
  f.text("source", h.source);
  f.text("kind", kind);
  if (kind != "gpu" && kind != "cpu") f.fail("kind", "is \"" + kind + "\"; use gpu or cpu");
  h.gpu = kind == "gpu";
  f.map("memory", [&](Fields& g) {
    g.number("usable_gib", h.usable_gib);
    g.number("context_gib", h.context_gib);
    g.number("communicator_gib", h.communicator_gib);
    g.number("workspace_gib", h.workspace_gib);
    g.flag("caching_allocator", h.caching_allocator);
    g.number("cache_mib", h.cache_mib);
  });
  f.map("node", [&](Fields& g) {
    g.number("devices", h.node_devices);
    g.text("network", h.network);
  });
  f.map("peak_tflops", [&](Fields& g) {
    g.number("bf16", h.peak_bf16_tflops);
    g.number("fp32", h.peak_fp32_tflops);
  });
  f.each("ops", [&](const std::string& name, Fields& g) { read_op(name, g, h); });
  f.map("collectives", [&](Fields& g) {
    read_curves(g, "all_gather", h.all_gather);
    read_curves(g, "reduce_scatter", h.reduce_scatter);
    read_curves(g, "all_reduce", h.all_reduce);
  });
  read_step(f, h);
  f.texts("assumed", h.assumed);
  return h;
}

std::string file_text(const std::string& path) {
  fsdp::SmallFile file = fsdp::read_small(path, fsdp::kLargestSmallFile);
  if (!file.problem.empty())
    throw fsdp::ConfigError("[hardware] " + path + " " + file.problem +
                            "; name a preset or a file that calibrate wrote");
  return std::move(file.text);
}

Network read_network(const std::string& name, Fields& f) {
  Network n;
  n.name = name;
  f.number("node_gb_s", n.node_gb_s);
  f.number("efficiency", n.efficiency);
  f.number("efficiency_low", n.efficiency_low);
  f.number("efficiency_high", n.efficiency_high);
  f.number("alpha_us", n.alpha_us);
  f.number("alpha_per_node_us", n.alpha_per_node_us);
  f.number("alpha_per_rank_us", n.alpha_per_rank_us);
  return n;
}

std::map<std::string, Network> networks() {
  std::map<std::string, Network> out;
  const std::string place = "networks.yaml";
  Fields f(cost::parse_yaml(cost::preset_text(kNetworks), place), place, "");
  f.each("networks", [&](const std::string& name, Fields& g) { out[name] = read_network(name, g); });
  f.done();
  return out;
}

}  // namespace

std::vector<std::string> hardware_presets() {
  std::vector<std::string> names;
  for (const std::string& name : cost::preset_names())
    if (name != kNetworks) names.push_back(name);
  return names;
}

std::vector<std::string> network_presets() {
  std::vector<std::string> names;
  for (const auto& [name, network] : networks()) names.push_back(name);
  return names;
}

Hardware parse_hardware(const std::string& yaml, const std::string& place) {
  Fields f(cost::parse_yaml(yaml, place), place, "");
  Hardware h = read_hardware(f);
  f.done();
  const bool gemm = h.ops.count("gemm_bf16") + h.ops.count("gemm_fp32") + h.ops.count("linear") > 0;
  if (!gemm) f.fail("ops", "has no cost of a matrix product; give gemm_bf16, gemm_fp32 or linear");
  for (const char* name : {"attention", "elementwise"}) {
    if (h.ops.count(name) == 0) f.fail("ops", std::string("has no ") + name + "; give its rates");
  }
  if (h.all_gather.empty()) f.fail("collectives.all_gather", "is missing; give at least one curve");
  if (h.reduce_scatter.empty()) h.reduce_scatter = h.all_gather;
  return h;
}

bool is_hardware_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

Hardware load_hardware(const std::string& name) {
  if (is_hardware_file(name)) return parse_hardware(file_text(name), name);
  const std::vector<std::string> presets = hardware_presets();
  if (std::find(presets.begin(), presets.end(), name) == presets.end()) {
    throw fsdp::ConfigError(
        fmt::format("[hardware] there is no preset '{}'; nearest: {}; all: {}; or name a file that ends in .yaml", name,
                    fsdp::nearest_names(name, presets), fmt::join(presets, ", ")));
  }
  return parse_hardware(cost::preset_text(name), name + ".yaml");
}

Network load_network(const std::string& name) {
  const std::map<std::string, Network> all = networks();
  const auto found = all.find(name);
  if (found == all.end()) {
    const std::vector<std::string> presets = network_presets();
    throw fsdp::ConfigError(fmt::format("[network] there is no preset '{}'; nearest: {}; all: {}", name,
                                        fsdp::nearest_names(name, presets), fmt::join(presets, ", ")));
  }
  return found->second;
}

}  // namespace harness
