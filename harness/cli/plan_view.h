// What `plan` knows of a case without running it: the units, their bytes, and the memory that the scheduler will ask
// for.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/memory_meter.h"
#include "harness/sweep/settings.h"

namespace harness::cli {

struct PlanUnit {
  std::string name;
  std::vector<std::string> modules;  // paths of the modules it is made of
  std::int64_t parameters = 0;
  fsdp::Bytes unsharded_bytes = 0;  // full parameters, padded, compute dtype
  fsdp::Bytes shard_bytes = 0;      // per rank, master dtype
  fsdp::Bytes gradient_bytes = 0;   // per rank, reduced
  fsdp::Bytes reduce_bytes = 0;     // reduce input, full, reduce dtype; 0 where there is none
  fsdp::Bytes optimizer_bytes = 0;  // per rank
  fsdp::Bytes padding_bytes = 0;    // of unsharded_bytes
  double share = 0;                 // of the model's parameters
  std::string strategy;
};

struct PlanView {
  std::vector<PlanUnit> units;
  std::int64_t parameters = 0;  // of the model, each tied one once
  std::size_t largest_unit = 0;
  fsdp::Bytes largest_allocation_bytes = 0;
  std::string largest_allocation;   // "model.layers.3, unsharded parameters"
  fsdp::BytesByCategory at_peak{};  // sums to peak_bytes; activations and other are 0
  fsdp::BytesByCategory category_peaks{};
  fsdp::Bytes peak_bytes = 0;  // without activations
  std::string peak_cause;
  std::optional<fsdp::MemoryPeak> with_activations;  // of the virtual world, where asked for (plan_activations.h)
  std::string with_activations_cause;
  std::vector<std::string> notes;
};

// Throws fsdp::ConfigError: settings, or a wrap that matches nothing.
PlanView make_plan_view(const CaseSettings& settings);

std::string plan_text(const CaseSettings& settings, const PlanView& view);
std::string plan_json(const CaseSettings& settings, const PlanView& view);

}  // namespace harness::cli
