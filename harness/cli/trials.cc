#include "harness/cli/trials.h"

#include <fmt/format.h>
#include <unistd.h>

#include "fsdp/core/errors.h"
#include "harness/advise/machine_state.h"
#include "harness/trace/chrome_writer.h"
#include "harness/trial/environment.h"
#include "harness/trial/gpu/gpu_watch.h"
#include "harness/trial/launchers.h"
#include "harness/trial/trial.h"

namespace harness::cli {
namespace {

EnvironmentMap environment() {
  EnvironmentMap out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string pair(*entry);
    if (const auto equals = pair.find('='); equals != std::string::npos)
      out[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return out;
}

}  // namespace

RunCase real_trials() {
  return [](const CaseSettings& settings, const CasePlan& plan) {
    TrialOptions options;
    options.repeat = plan.repeat;
    options.trace = plan.trace;
    options.timeout = plan.timeout;
    options.log_dir = plan.log_dir;
    options.stop = plan.stop;
    const MachineState before = read_machine_state();
    GpuWatch gpus;
    CaseRecord r = run_trial(settings, options);
    const MachineChange change = machine_change(before, read_machine_state(), usable_cores());
    r.environment.insert(change.fields.begin(), change.fields.end());
    r.warnings.insert(r.warnings.end(), change.warnings.begin(), change.warnings.end());
    const GpuReport gpu = gpus.finish();
    r.environment.insert(gpu.fields.begin(), gpu.fields.end());
    r.warnings.insert(r.warnings.end(), gpu.warnings.begin(), gpu.warnings.end());
    return r;
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
  const auto place = rank_place(environment());
  if (!place || place->world == 1) return;
  throw fsdp::ConfigError(
      fmt::format("[launch] started as rank {} of {} by {}, which is not in this version; start shardscope alone, it "
                  "launches its ranks itself",
                  place->rank, place->world, place->contract));
}

}  // namespace harness::cli
