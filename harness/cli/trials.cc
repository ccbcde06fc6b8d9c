#include "harness/cli/trials.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/plan/shard_layout.h"
#include "harness/advise/machine_state.h"
#include "harness/advise/recommend.h"
#include "harness/cli/commands.h"
#include "harness/trace/chrome_writer.h"
#include "harness/trial/case_units.h"
#include "harness/trial/environment.h"
#include "harness/trial/gpu/gpu_watch.h"
#include "harness/trial/join.h"
#include "harness/trial/run_secret.h"
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

// The rank program, and whatever else this process starts, does not inherit it.
std::string taken_secret(const RankPlace& place) {
  check_master(place);
  std::string secret = run_secret(place, environment());
  ::unsetenv(kSecretVariable);
  return secret;
}

using RunTrial = std::function<CaseRecord(const CaseSettings&, const TrialOptions&)>;

// With what the machine did meanwhile.
RunCase watched(RunTrial run) {
  return [run = std::move(run)](const CaseSettings& settings, const CasePlan& plan) {
    TrialOptions options;
    options.repeat = plan.repeat;
    options.trace = plan.trace;
    options.timeout = plan.timeout;
    options.log_dir = plan.log_dir;
    options.stop = plan.stop;
    options.pin = plan.pin;
    if (settings.device == DeviceKind::kVirtual)
      return run(settings, options);  // no time of this machine is in a prediction
    const MachineState before = read_machine_state();
    GpuWatch gpus;
    CaseRecord r = run(settings, options);
    const MachineChange change = machine_change(before, read_machine_state(), usable_cores());
    r.environment.insert(change.fields.begin(), change.fields.end());
    r.warnings.insert(r.warnings.end(), change.warnings.begin(), change.warnings.end());
    const GpuReport gpu = gpus.finish();
    r.environment.insert(gpu.fields.begin(), gpu.fields.end());
    r.warnings.insert(r.warnings.end(), gpu.warnings.begin(), gpu.warnings.end());
    return r;
  };
}

}  // namespace

RunCase real_trials() { return watched(run_trial); }

RunCase joined_trials(const RankPlace& place) {
  return watched([place, secret = taken_secret(place)](const CaseSettings& settings, const TrialOptions& options) {
    return lead_trial(place, secret, settings, options);
  });
}

void follow(const RankPlace& place, const CaseSettings& settings, const std::string& log_dir,
            const std::atomic<bool>& stop) {
  JoinOptions options;
  options.log_dir = log_dir;
  options.stop = &stop;
  ends_with(follow_trial(place, taken_secret(place), settings, options));
}

void check_ranks_on_this_machine(const CaseSettings& settings) {
  constexpr int kMostPerCore = 64;
  if (settings.device != DeviceKind::kCpu || settings.world / kMostPerCore < usable_cores()) return;
  throw fsdp::EnvironmentError(fmt::format(
      "[world] {} ranks are as many processes, {} or more for each of this machine's {} cores; use fewer, several "
      "machines (torchrun, srun, mpirun), or --device virtual, which predicts any number",
      settings.world, kMostPerCore, usable_cores()));
}

std::optional<bool> predicted_to_fit(const CaseSettings& settings, const std::atomic<bool>* stop) {
  if (settings.device != DeviceKind::kCpu) return std::nullopt;
  CaseSettings c = settings;
  c.device = DeviceKind::kVirtual;
  c.collectives = CollectivesKind::kAuto;
  c.wire.reset();
  c.steps = 1;
  c.warmup = 1;
  TrialOptions options;
  options.trace = false;
  options.stop = stop;
  const Status status = run_trial(c, options).status;
  if (status == Status::kOom) return false;
  return measured(status) ? std::optional(true) : std::nullopt;
}

namespace {
// What `analyze` must know of the ranks and cannot see in their spans (trace/kineto_reader.h).
void tell_ranks(TraceMetadata& metadata, const CaseRecord& r) {
  const CaseSettings c = settings_of(r);
  const auto hosts = r.environment.find("hosts");
  const bool one_host = hosts == r.environment.end() || hosts->second.find(',') == std::string::npos;
  // A GPU's times are brought to the host's clock for each rank by itself.
  if (c.device == DeviceKind::kVirtual || (c.device == DeviceKind::kCpu && one_host)) metadata["clock"] = "one";
  std::string& regathered = metadata["regathered"];
  const fsdp::UnitPlan plan = plan_of(c);
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    if (fsdp::reshard_ranks(plan.units[u], c.world) > 0)
      regathered += fmt::format("{}{}", regathered.empty() ? "" : " ", u);
}
}  // namespace

void write_trace(const std::string& path, const CaseRecord& r, bool follow) {
  std::vector<std::string> names;
  for (const UnitRecord& u : r.unit_table) names.push_back(u.name);
  TraceMetadata metadata = {{"case", r.id}, {"status", std::string(name_of(r.status))}};
  for (const char* key : {"shardscope", "git_revision", "host", "cpu", "command"}) {
    if (const auto found = r.environment.find(key); found != r.environment.end()) metadata[key] = found->second;
  }
  tell_ranks(metadata, r);
  write_chrome_trace(path, r.spans, names, metadata, follow);
}

std::optional<RankPlace> launched_place() {
  const auto place = rank_place(environment());
  return place && place->world > 1 ? place : std::nullopt;
}

bool predicts_beside_the_first() {
  try {
    const auto place = launched_place();
    return place && place->rank > 0;
  } catch (const fsdp::ConfigError&) {  // incomplete: nobody launched this process
    return false;
  }
}

}  // namespace harness::cli
