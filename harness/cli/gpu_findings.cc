#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/cli/machine.h"
#include "harness/sweep/quantities.h"

namespace harness::cli {
namespace {

using Kind = Finding::Kind;
constexpr int kOurCuda = 13000;  // of the LibTorch that this version builds against

// "what; remedy" in its two parts.
Finding absent(const std::string& name, const std::string& sentence) {
  const auto cut = sentence.find("; ");
  return {Kind::kAbsent, name, sentence.substr(0, cut), cut == std::string::npos ? "" : sentence.substr(cut + 2)};
}

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Finding cuda_module(const RankProgramFacts& rank) {
  if (rank.cuda_module) return {Kind::kGood, "cuda", "the CUDA module is there", ""};
  return {Kind::kAbsent, "cuda", "this shardscope is built without CUDA",
          "build with cmake --preset cuda where a CUDA toolkit is; or use --device cpu, or --device virtual to predict "
          "a GPU node"};
}

Finding driver(const GpuNodeFacts& g) {
  if (!g.no_driver.empty()) return absent("gpu driver", g.no_driver);
  Finding f{Kind::kGood, "gpu driver", g.driver.empty() ? "unknown version" : g.driver, ""};
  if (!g.driver_cuda) return f;
  f.value += fmt::format(" (CUDA {})", cuda_text(*g.driver_cuda));
  if (*g.driver_cuda / 1000 < kOurCuda / 1000)
    f.kind = Kind::kWarning,
    f.remedy = fmt::format("torch 2.11 of PyPI needs CUDA {}: update the driver to 580 or later", cuda_text(kOurCuda));
  return f;
}

std::string gpu_text(const GpuFacts& g) {
  std::string text = g.name.empty() ? "a GPU that does not answer" : g.name;
  if (g.memory_bytes) text += ", " + format_bytes(*g.memory_bytes);
  if (g.power_limit_mw) text += fmt::format(", {} W", *g.power_limit_mw / 1000);
  return text;
}

void gpus(const GpuNodeFacts& g, std::vector<Finding>& out) {
  if (g.gpus.empty()) {
    out.push_back({Kind::kWarning, "gpus", "none",
                   "the driver runs and shows no GPU: see CUDA_VISIBLE_DEVICES, and the container's --gpus"});
    return;
  }
  std::map<std::string, int> kinds;
  for (const GpuFacts& gpu : g.gpus) ++kinds[gpu_text(gpu)];
  for (const auto& [text, count] : kinds) {
    Finding f{Kind::kGood, "gpus", fmt::format("{} x {}", count, text), ""};
    if (text.rfind("a GPU that", 0) == 0)
      f.kind = Kind::kWarning, f.remedy = "it has fallen off the bus or needs a reset: nvidia-smi, dmesg";
    else if (kinds.size() > 1)
      f.kind = Kind::kWarning,
      f.remedy = "GPUs differ: the slowest sets the step time; choose equal ones with CUDA_VISIBLE_DEVICES";
    out.push_back(f);
  }
  if (std::any_of(g.gpus.begin(), g.gpus.end(), [](const GpuFacts& x) { return x.mig.value_or(false); }))
    out.push_back({Kind::kWarning, "mig", "on",
                   "an instance is a part of a GPU, and NCCL does not connect instances of one GPU: turn it off, or "
                   "use one instance"});
}

void links(const GpuNodeFacts& g, std::vector<Finding>& out) {
  if (g.gpus.size() < 2) return;
  Finding f{Kind::kGood, "gpu links", g.topology.empty() ? "not told" : g.topology, ""};
  const bool nvlink = f.value.find("NVLink") != std::string::npos;
  if (nvlink && f.value.find(',') != std::string::npos)
    f.kind = Kind::kWarning,
    f.remedy = "some pairs lack NVLink: collectives run at the slowest link; see nvidia-smi topo -m";
  else if (!nvlink && !g.topology.empty())
    f.remedy = "collectives go over PCIe (nvidia-smi topo -m explains the words)";
  out.push_back(f);
  unsigned most = 0;
  for (const GpuFacts& gpu : g.gpus) most = std::max(most, gpu.nvlinks.value_or(0));
  for (std::size_t i = 0; i < g.gpus.size(); ++i)
    if (const unsigned up = g.gpus[i].nvlinks.value_or(0); most > 0 && up < most)
      out.push_back({Kind::kWarning, "nvlink", fmt::format("GPU {} has {} of {} links up", i, up, most),
                     "nvidia-smi nvlink -s; have the node serviced"});
}

Finding counters(const GpuNodeFacts& g) {
  if (g.admin || g.counters_admin_only == false) return {Kind::kGood, "gpu counters", "allowed", ""};
  if (!g.counters_admin_only)
    return {Kind::kAbsent, "gpu counters", "not told by the driver",
            "if nsys --gpu-metrics-devices is refused: NVreg_RestrictProfilingToAdminUsers=0"};
  return {Kind::kWarning, "gpu counters", "for administrators only (RmProfilingAdminOnly)",
          "timelines work; for nsys --gpu-metrics-devices load the driver with NVreg_RestrictProfilingToAdminUsers=0, "
          "or give the container CAP_SYS_ADMIN"};
}

std::string rank_fact(const RankProgramFacts& rank, const char* name) {
  const auto facts = nlohmann::json::parse(rank.output, nullptr, false);
  return facts.is_object() && facts.contains(name) && facts[name].is_string() ? facts[name].get<std::string>() : "";
}

Finding library(const RankProgramFacts& rank, const char* name, const char* remedy) {
  const std::string found = rank_fact(rank, name);
  if (!found.empty()) return {Kind::kGood, name, found, ""};
  return {Kind::kAbsent, name, "not found", remedy};
}

void fabric(const GpuNodeFacts& g, std::vector<Finding>& out) {
  if (g.infiniband.empty() || g.gpus.empty()) return;
  Finding f{Kind::kGood, "fabric", fmt::format("{}", fmt::join(g.infiniband, ", ")), ""};
  f.value += g.gpu_direct ? ", GPUDirect (nvidia_peermem)" : ", nvidia_peermem is not loaded";
  if (!g.gpu_direct)
    f.remedy =
        "without DMA-BUF support in the kernel, traffic between nodes goes through host memory: modprobe "
        "nvidia_peermem";
  out.push_back(f);
}

}  // namespace

std::vector<Finding> gpu_findings(const GpuNodeFacts& g, const RankProgramFacts& rank) {
  std::vector<Finding> out = {cuda_module(rank), driver(g)};
  if (g.no_driver.empty()) {
    gpus(g, out);
    links(g, out);
    fabric(g, out);
    out.push_back(counters(g));
  }
  out.push_back(
      library(rank, "nccl", "it comes with a CUDA build of torch; without it use --collectives local or gloo"));
  out.push_back(library(rank, "cupti", "it comes with a CUDA build of torch; without it GPU times come from events"));
  if (!g.other_profiler.empty())
    out.push_back(
        {Kind::kWarning, "profiler", g.other_profiler, "end the other tool for GPU times in shardscope's own rows"});
  if (g.nsys.empty())
    out.push_back({Kind::kAbsent, "nsys", "not on PATH",
                   "scripts/nsys needs Nsight Systems; developer.nvidia.com/nsight-systems"});
  else
    out.push_back({Kind::kGood, "nsys", g.nsys, ""});
  return out;
}

}  // namespace harness::cli
