#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fsdp/core/clock.h"
#include "harness/cli/machine.h"
#include "harness/sweep/text.h"
#include "harness/trace/cupti_library.h"
#include "harness/trial/environment.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;

// The words of a "flags" line that matter for speed.
std::string vector_units() {
  std::ifstream in("/proc/cpuinfo");
  std::string line, out;
  while (std::getline(in, line) && line.rfind("flags", 0) != 0) {
  }
  line += " ";
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (line.find(std::string(" ") + flag + " ") != std::string::npos)
      out += (out.empty() ? "" : ", ") + std::string(flag);
  }
  return out;
}

struct Output {
  int status = -1;
  std::string text;
};

// A program that does not end, on a broken driver or file system, is ended after kPatience: timeout(1) of coreutils.
// It says 124, or 137 when it had to kill: as does a program that the kernel ended for want of memory, but sooner.
constexpr int kPatience = 60;  // seconds
constexpr int kTimedOut = 124;

bool gave_up(int status, fsdp::Nanos took) {
  return status == kTimedOut || (status == 128 + SIGKILL && took >= kPatience * fsdp::Nanos{1'000'000'000});
}

Output output_of(const std::string& command) {
  Output out;
  const fsdp::Nanos begin = fsdp::steady_now();
  FILE* pipe = ::popen(fmt::format("timeout --foreground -k 5 {} {}", kPatience, command).c_str(), "r");
  if (!pipe) return out;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.text.append(buffer, n);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (gave_up(out.status, fsdp::steady_now() - begin)) out.text += fmt::format("no answer within {} s", kPatience);
  return out;
}

RankProgramFacts probe_rank() {
  RankProgramFacts r;
  r.path = default_rank_program();
  r.executable = ::access(r.path.c_str(), X_OK) == 0;
  std::error_code error;
  r.cuda_module = fs::exists(fs::path(r.path).parent_path() / "libshardscope_cuda.so", error);
  if (!r.executable) return r;
  const Output probe = output_of(shell_quoted(r.path) + " --probe 2>&1");
  r.status = probe.status, r.output = probe.text;
  return r;
}

std::string nsys_version() {
  const Output said = output_of("nsys --version 2>/dev/null");
  return said.status == 0 ? trim(said.text.substr(0, said.text.find('\n'))) : "";
}

GpuNodeFacts probe_gpus() {
  GpuNodeFacts g;
  if (const auto nvml = Nvml::open(g.no_driver)) {
    g.driver = nvml->driver();
    g.driver_cuda = nvml->cuda_version();
    g.gpus = nvml->gpus();
    g.topology = topology_text(*nvml);
  }
  probe_gpu_files("", g);
  g.nsys = nsys_version();
  g.other_profiler = other_profiler([](const char* name) -> const char* { return std::getenv(name); });
  return g;
}

}  // namespace

MachineFacts probe_machine() {
  MachineFacts f;
  f.host = host_environment();
  f.cores = usable_cores();
  f.vector_units = vector_units();
  struct statvfs s {};
  if (::statvfs("/dev/shm", &s) == 0)
    f.shared_memory_free = static_cast<fsdp::Bytes>(s.f_bavail) * static_cast<fsdp::Bytes>(s.f_frsize);
  f.rank = probe_rank();
  f.gpu = probe_gpus();
  return f;
}

std::vector<Finding> examine_machine() { return findings_of(probe_machine()); }

}  // namespace harness::cli
