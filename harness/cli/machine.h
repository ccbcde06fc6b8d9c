// What `doctor` looks at: facts are read from the machine, findings follow from facts alone.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "harness/trial/gpu/nvml.h"

namespace harness::cli {

struct Finding {
  enum class Kind { kGood, kAbsent, kWarning, kBroken };  // kBroken: the main job cannot run
  Kind kind = Kind::kGood;
  std::string name;    // "rank program"
  std::string value;   // what was found
  std::string remedy;  // what to do about it; empty when nothing is to be done
};

// The program that ranks run, asked with --probe.
struct RankProgramFacts {
  std::string path;
  bool executable = false;
  int status = -1;           // of the probe
  std::string output;        // one JSON object when it went well
  bool cuda_module = false;  // libshardscope_cuda.so lies beside it
};

struct GpuNodeFacts {
  std::string no_driver;  // a sentence; empty: NVML answered
  std::string driver;
  std::optional<int> driver_cuda;  // 13000: 13.0
  std::vector<GpuFacts> gpus;
  std::string topology;
  std::optional<bool> counters_admin_only;  // RmProfilingAdminOnly; absent: not told
  bool admin = false;                       // this process has CAP_SYS_ADMIN
  std::string nsys;                         // its version line; empty: not on PATH
  std::vector<std::string> infiniband;      // devices
  bool gpu_direct = false;                  // nvidia_peermem is loaded
  std::string other_profiler;               // a sentence: a tool holds CUPTI here
};

struct MachineFacts {
  std::map<std::string, std::string> host;  // host_environment()
  int cores = 0;
  std::string vector_units;                       // "avx2, avx512f"; empty: none
  std::optional<fsdp::Bytes> shared_memory_free;  // absent: no /dev/shm
  RankProgramFacts rank;
  GpuNodeFacts gpu;
};

MachineFacts probe_machine();
// `root` stands for "/": tests give a folder of their own.
void probe_gpu_files(const std::string& root, GpuNodeFacts& out);

std::vector<Finding> findings_of(const MachineFacts& facts);
std::vector<Finding> gpu_findings(const GpuNodeFacts& gpu, const RankProgramFacts& rank);

std::vector<Finding> examine_machine();  // findings_of(probe_machine())
bool can_run(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace harness::cli
