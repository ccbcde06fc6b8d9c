#include "harness/cli/trials.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "fsdp/core/errors.h"
#include "harness/trace/chrome_writer.h"
#include "harness/trial/environment.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

struct Launcher {
  const char* name;
  const char* world;  // variable with the number of processes
};
constexpr Launcher kLaunchers[] = {{"torchrun", "TORCHELASTIC_RUN_ID"},
                                   {"mpirun", "OMPI_COMM_WORLD_SIZE"},
                                   {"mpirun", "PMI_SIZE"},
                                   {"srun", "SLURM_STEP_NUM_TASKS"}};

}  // namespace

RunCase real_trials() {
  return [](const CaseSettings& settings, const CasePlan& plan) {
    TrialOptions options;
    options.repeat = plan.repeat;
    options.trace = plan.trace;
    options.timeout = plan.timeout;
    options.log_dir = plan.log_dir;
    options.stop = plan.stop;
    return run_trial(settings, options);
  };
}

void write_trace(const std::string& path, const CaseRecord& r) {
  std::vector<std::string> names;
  for (const UnitRecord& u : r.unit_table) names.push_back(u.name);
  TraceMetadata metadata = {{"case", r.id}, {"status", std::string(name_of(r.status))}};
  for (const char* key : {"shardscope", "git_revision", "host", "cpu", "command"}) {
    if (const auto found = r.environment.find(key); found != r.environment.end()) metadata[key] = found->second;
  }
  write_chrome_trace(path, r.spans, names, metadata);
}

void refuse_foreign_launcher() {
  for (const Launcher& l : kLaunchers) {
    const char* world = std::getenv(l.world);
    if (!world || std::string_view(world) == "1") continue;
    throw fsdp::ConfigError(
        fmt::format("[launch] started by {} ({}={}), which is not in this version; start shardscope alone, it launches "
                    "its ranks itself",
                    l.name, l.world, world));
  }
}

}  // namespace harness::cli
