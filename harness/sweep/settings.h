// CaseSettings: one point of a sweep, as typed values. One table drives the flags of `run`, the keys of a spec, the
// JSON that ranks get, --help, and the canonical text that a case id is made from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/schedule/scheduler.h"
#include "harness/workload/model_settings.h"

namespace harness {

struct Wire {
  bool on = false;
  fsdp::Nanos latency_ns = 0;
  double bytes_per_second = 0;
};

struct CaseSettings {
  std::string device = "cpu";
  std::string model = "llama";
  std::string set;
  int world = 2;
  int batch = 1;
  int seq = 0;  // 0: the model's
  int accumulate = 1;
  std::string accumulate_sync = "last";
  std::string wrap = "block";
  std::string strategy = "full_shard";
  std::string reshard_after_forward = "auto";
  int forward_prefetch = 1;
  std::string backward_prefetch = "pre";
  std::string max_inflight = "auto";
  int reduce_scatter_slots = 2;
  std::string prefetch_order = "recorded";
  std::string reduce_scatter_communicator = "shared";
  std::string param_dtype = "fp32";
  std::string reduce_dtype = "fp32";
  std::string output_dtype = "auto";
  std::string buffer_dtype = "fp32";
  std::string layout = "flat";
  std::string checkpoint = "none";
  std::string optimizer = "adamw";
  std::string clip = "none";
  std::string collectives = "auto";
  std::string nccl_ctas = "auto";
  std::string nccl_buffers = "plain";
  std::string wire = "none";
  std::string memory_budget = "none";
  std::string hardware;
  int ranks_per_node = 0;
  std::string network;
  std::string arrival_skew = "none";
  std::uint64_t seed = 0;
  int steps = 10;
  int warmup = 3;
  std::string step_timeout = "60s";
};

// One row of the settings table.
struct SettingInfo {
  std::string name;      // "forward_prefetch"; the flag is --forward-prefetch
  std::string values;    // what --help shows: "0, 1, ..."
  std::string help;      // one line, with the unit
  std::string standard;  // default as text
};
const std::vector<SettingInfo>& setting_table();
// Sets one setting from text; throws fsdp::ConfigError "what, what would be right" (the caller adds file and line).
// An unknown name lists the nearest ones.
void apply_setting(CaseSettings& c, const std::string& name, const std::string& text);
std::string setting_text(const CaseSettings& c, const std::string& name);  // canonical text of the present value
std::vector<std::pair<std::string, std::string>> all_settings(const CaseSettings& c);  // in table order

// Checks settings against each other and against what this build can do. Throws ConfigError (bad), EnvironmentError
// (needs something that is absent: the text holds the remedy).
void validate(const CaseSettings& c);
// The same for `plan`, which runs nothing: every device and dtype is allowed.
void validate_for_plan(const CaseSettings& c);
// Sentences for the user about settings that are allowed but work against each other.
std::vector<std::string> setting_warnings(const CaseSettings& c);

// Typed views, after validate(). They throw ConfigError too.
ModelSettings model_of(const CaseSettings& c);
int seq_of(const CaseSettings& c);
fsdp::UnitOptions unit_options_of(const CaseSettings& c);
fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c);
Wire wire_of(const CaseSettings& c);
// By how much each named rank comes later to every collective than the others; empty for none.
std::vector<std::pair<int, fsdp::Nanos>> arrival_skew_of(const CaseSettings& c);
struct CtaLimits {
  int min = 0, max = 0;  // 0: NCCL's choice
};
CtaLimits nccl_ctas_of(const CaseSettings& c);
std::optional<double> clip_of(const CaseSettings& c);
fsdp::Bytes memory_budget_of(const CaseSettings& c);  // MemoryMeter::kNoBudget for none
fsdp::Nanos step_timeout_of(const CaseSettings& c);

// Stable id: model family, wrap, and 12 hex digits of a hash of the canonical settings, e.g.
// "llama-block-1f0a9c3b77de".
std::string case_id(const CaseSettings& c);
// JSON of all settings (strings and numbers as in the table); the inverse applies each key.
std::string to_json(const CaseSettings& c);
CaseSettings settings_from_json(const std::string& text);

// Quantities: "64MiB", "1GB", "1024" (bytes); "50us", "2s"; "10GB/s", "100Gbit/s". Negative, unit-less where a unit is
// needed, or trailing text: ConfigError with an example of what is right. (harness/sweep/quantities.h)

}  // namespace harness
