#include "harness/cli/plan_activations.h"

#include "fsdp/core/errors.h"
#include "harness/trial/trial.h"

namespace harness::cli {

fsdp::MemoryPeak peak_with_activations(const CaseSettings& settings, std::string& cause) {
  CaseSettings c = settings;
  c.device = DeviceKind::kVirtual;
  c.collectives = CollectivesKind::kAuto;
  c.memory_budget = fsdp::Bytes{1} << 50;  // instead of the hardware's
  TrialOptions options;
  options.trace = false;
  const CaseRecord r = run_trial(c, options);
  if (!measured(r.status) || r.ranks.empty()) throw fsdp::ConfigError("[activations] " + r.reason);
  cause = r.ranks.front().peak_cause;
  return r.ranks.front().peak;
}

}  // namespace harness::cli
