#include "harness/cli/machine.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"

namespace harness::cli {
namespace {

using Kind = Finding::Kind;
constexpr fsdp::Bytes kLittleSharedMemory = 256ll << 20;

std::string value_of(const std::map<std::string, std::string>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? "unknown" : found->second;
}

Finding cores(int n) {
  Finding f{Kind::kGood, "cores", std::to_string(n), ""};
  if (n < 2)
    f.kind = Kind::kWarning,
    f.remedy = "ranks share the core and their times include waiting for it; use 2 cores or more";
  return f;
}

Finding shared_memory(std::optional<fsdp::Bytes> free) {
  if (!free)
    return {Kind::kWarning, "shared memory", "no /dev/shm", "ranks use anonymous memory files, which need none"};
  if (*free < kLittleSharedMemory)
    return {Kind::kWarning, "shared memory", format_bytes(*free) + " free",
            "programs beside this one may need more; in a container start it with --shm-size=1g"};
  return {Kind::kGood, "shared memory", format_bytes(*free) + " free", ""};
}

// Facts of the rank program become findings of their own; those about GPUs come with the GPUs.
void rank_program(const RankProgramFacts& rank, std::vector<Finding>& findings) {
  const char* remedy =
      "build it with `cmake --build build --target shardscope-rank` (needs LibTorch: scripts/dependencies), or name "
      "one in SHARDSCOPE_RANK";
  if (!rank.executable) return findings.push_back({Kind::kBroken, "rank program", rank.path + " is not there", remedy});
  const auto facts = nlohmann::json::parse(rank.output, nullptr, false);
  if (rank.status != 0 || !facts.is_object()) {
    const bool torch = rank.output.find("ibtorch") != std::string::npos ||
                       rank.output.find("ibTorch") != std::string::npos ||
                       rank.output.find("ibc10") != std::string::npos;
    return findings.push_back({Kind::kBroken, "rank program",
                               fmt::format("{} does not start: {}", rank.path, trim(rank.output.substr(0, 300))),
                               torch ? "it finds no LibTorch: install torch of the version it was built with, and name "
                                       "its folder in TORCH_DIR (bundle) or LD_LIBRARY_PATH"
                                     : remedy});
  }
  findings.push_back({Kind::kGood, "rank program", rank.path, ""});
  for (const auto& [name, value] : facts.items())
    if (name != "cupti" && name != "nccl")
      findings.push_back({Kind::kGood, name, value.is_string() ? value.get<std::string>() : value.dump(), ""});
}

// Variables that end what this program measures.
Finding variable(const std::string& name, const std::string& value) {
  static const std::map<std::string, const char*> kHarmful = {
      {"CUDA_DEVICE_MAX_CONNECTIONS", "one hardware queue ends the overlap of reduce-scatters on CUDA; unset it"},
      {"CUDA_LAUNCH_BLOCKING", "every launch waits for its end: nothing overlaps; unset it"},
      {"NCCL_P2P_DISABLE", "GPUs talk through host memory; unset it"},
      {"NCCL_SHM_DISABLE", "processes of one node talk through the network; unset it"},
      {"NCCL_IB_DISABLE", "nodes talk through sockets; unset it"}};
  Finding f{Kind::kGood, name, value, ""};
  if (const auto harmful = kHarmful.find(name); harmful != kHarmful.end() && value == "1")
    f.kind = Kind::kWarning, f.remedy = harmful->second;
  return f;
}

const char* mark_of(Kind k) {
  switch (k) {
    case Kind::kGood:
      return "ok";
    case Kind::kAbsent:
      return "--";
    case Kind::kWarning:
      return "! ";
    case Kind::kBroken:
      return "NO";
  }
  return "?";
}

const char* word_of(Kind k) {
  switch (k) {
    case Kind::kGood:
      return "ok";
    case Kind::kAbsent:
      return "absent";
    case Kind::kWarning:
      return "warning";
    case Kind::kBroken:
      return "broken";
  }
  return "?";
}

}  // namespace

std::vector<Finding> findings_of(const MachineFacts& f) {
  std::vector<Finding> out = {
      {Kind::kGood, "shardscope", value_of(f.host, "shardscope") + " (" + value_of(f.host, "git_revision") + ")", ""},
      {Kind::kGood, "compiler", fmt::format("GCC compatible {}", __VERSION__), ""},
      {Kind::kGood, "system", value_of(f.host, "kernel"), ""},
      {Kind::kGood, "cpu", value_of(f.host, "cpu"), ""},
      cores(f.cores),
      {Kind::kGood, "vector units",
       f.vector_units.empty() ? "none of avx2, avx512f, avx512_bf16, amx_bf16" : f.vector_units, ""},
      {Kind::kGood, "memory", format_bytes(std::atoll(value_of(f.host, "memory_bytes").c_str())), ""},
      shared_memory(f.shared_memory_free)};
  rank_program(f.rank, out);
  for (Finding& g : gpu_findings(f.gpu, f.rank)) out.push_back(std::move(g));
  for (const auto& [name, value] : f.host)
    if (name.rfind("env.", 0) == 0) out.push_back(variable(name.substr(4), value));
  return out;
}

bool can_run(const std::vector<Finding>& findings) {
  for (const Finding& f : findings) {
    if (f.kind == Kind::kBroken) return false;
  }
  return true;
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings) {
    out += fmt::format("{}  {:<16} {}\n", mark_of(f.kind), f.name, f.value);
    if (!f.remedy.empty()) out += fmt::format("{:<20} -> {}\n", "", f.remedy);
  }
  out += can_run(findings) ? "run, sweep, plan and report work here\n"
                           : "run and sweep cannot work here; plan and report can\n";
  return out;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json out = {{"can_run", can_run(findings)}, {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& f : findings)
    out["findings"].push_back({{"name", f.name}, {"state", word_of(f.kind)}, {"value", f.value}, {"remedy", f.remedy}});
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace harness::cli
