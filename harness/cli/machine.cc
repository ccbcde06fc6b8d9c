#include "harness/cli/machine.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/trial/environment.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

using Kind = Finding::Kind;
constexpr fsdp::Bytes kLittleSharedMemory = 256ll << 20;

std::string value_of(const std::map<std::string, std::string>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? "unknown" : found->second;
}

// The words of a "flags" line that matter for speed.
std::string cpu_flags() {
  std::ifstream in("/proc/cpuinfo");
  std::string line, out;
  while (std::getline(in, line) && line.rfind("flags", 0) != 0) {
  }
  line += " ";
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (line.find(std::string(" ") + flag + " ") != std::string::npos)
      out += (out.empty() ? "" : ", ") + std::string(flag);
  }
  return out.empty() ? "none of avx2, avx512f, avx512_bf16, amx_bf16" : out;
}

Finding cores() {
  const int n = usable_cores();
  Finding f{Kind::kGood, "cores", std::to_string(n), ""};
  if (n < 2)
    f.kind = Kind::kWarning,
    f.remedy = "ranks share the core and their times include waiting for it; use 2 cores or more";
  return f;
}

Finding shared_memory() {
  struct statvfs s {};
  if (::statvfs("/dev/shm", &s) != 0)
    return {Kind::kWarning, "shared memory", "no /dev/shm", "ranks use anonymous memory files, which need none"};
  const auto free = static_cast<fsdp::Bytes>(s.f_bavail) * static_cast<fsdp::Bytes>(s.f_frsize);
  if (free < kLittleSharedMemory)
    return {Kind::kWarning, "shared memory", format_bytes(free) + " free",
            "programs beside this one may need more; in a container start it with --shm-size=1g"};
  return {Kind::kGood, "shared memory", format_bytes(free) + " free", ""};
}

struct Output {
  int status = -1;
  std::string text;
};

Output output_of(const std::string& command) {
  Output out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return out;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.text.append(buffer, n);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

// Facts of the rank program become findings of their own.
void rank_program(std::vector<Finding>& findings) {
  const std::string program = default_rank_program();
  const char* remedy =
      "build it with `cmake --build build --target shardscope-rank` (needs LibTorch: scripts/dependencies), or name "
      "one in SHARDSCOPE_RANK";
  if (::access(program.c_str(), X_OK) != 0)
    return findings.push_back({Kind::kBroken, "rank program", program + " is not there", remedy});
  const Output probe = output_of(shell_quoted(program) + " --probe 2>&1");
  const auto facts = nlohmann::json::parse(probe.text, nullptr, false);
  if (probe.status != 0 || !facts.is_object()) {
    return findings.push_back({Kind::kBroken, "rank program",
                               fmt::format("{} does not start: {}", program, trim(probe.text.substr(0, 300))), remedy});
  }
  findings.push_back({Kind::kGood, "rank program", program, ""});
  for (const auto& [name, value] : facts.items())
    findings.push_back({Kind::kGood, name, value.is_string() ? value.get<std::string>() : value.dump(), ""});
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

std::vector<Finding> examine_machine() {
  const auto host = host_environment();
  std::vector<Finding> out = {
      {Kind::kGood, "shardscope", value_of(host, "shardscope") + " (" + value_of(host, "git_revision") + ")", ""},
      {Kind::kGood, "compiler", fmt::format("GCC compatible {}", __VERSION__), ""},
      {Kind::kGood, "system", value_of(host, "kernel"), ""},
      {Kind::kGood, "cpu", value_of(host, "cpu"), ""},
      cores(),
      {Kind::kGood, "vector units", cpu_flags(), ""},
      {Kind::kGood, "memory", format_bytes(std::atoll(value_of(host, "memory_bytes").c_str())), ""},
      shared_memory()};
  rank_program(out);
  out.push_back({Kind::kAbsent, "cuda", "this shardscope is built without CUDA",
                 "this version does not have it yet: use --device cpu, or --device virtual to predict a GPU node"});
  out.push_back({Kind::kAbsent, "nccl", "comes with CUDA", "use --collectives local or gloo"});
  for (const auto& [name, value] : host) {
    if (name.rfind("env.", 0) != 0) continue;
    Finding f{Kind::kGood, name.substr(4), value, ""};
    if (f.name == "CUDA_DEVICE_MAX_CONNECTIONS" && value == "1") {
      f.kind = Kind::kWarning, f.remedy = "one hardware queue ends the overlap of reduce-scatters on CUDA; unset it";
    }
    out.push_back(f);
  }
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
