// CaseSettings: one point of a sweep, as typed values. Text is at the borders alone: YAML, flags, case ids, records and
// sockets. The table in settings_table.cc says for each setting how it is read and printed, what it is for, and what
// part it has in a comparison; a new setting is a field here and a row there (harness/README.md).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/memory_meter.h"
#include "fsdp/core/optimizer_kind.h"
#include "fsdp/core/types.h"
#include "fsdp/core/wire.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/plan/wrap_policy.h"
#include "fsdp/schedule/scheduler.h"
#include "harness/sweep/file_texts.h"
#include "harness/workload/model_settings.h"

namespace harness {

struct Hardware;

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kVirtual };
enum class Runtime : std::uint8_t { kShardscope, kFsdp2, kFsdp1 };
enum class AccumulateSync : std::uint8_t { kEvery, kLast };
enum class ReduceScatterCommunicator : std::uint8_t { kShared, kOwn };
enum class Checkpoint : std::uint8_t { kNone, kBlock };
enum class CollectivesKind : std::uint8_t { kAuto, kLocal, kGloo, kNccl };
enum class NcclBuffers : std::uint8_t { kPlain, kRegistered };

struct WrapChoice {
  std::string text = "block";
  fsdp::WrapPolicy policy = fsdp::WrapBlocks{};
  std::shared_ptr<const FileText> file;  // of plan:FILE
};
struct BackwardPrefetchChoice {
  fsdp::BackwardPrefetch mode = fsdp::BackwardPrefetch::kPre;
  int depth = 1;
};
struct HardwareChoice {
  std::string name;                       // empty: none
  std::shared_ptr<const Hardware> costs;  // null: none
  std::shared_ptr<const FileText> file;   // null: a preset
};
struct CtaLimits {
  int min = 0, max = 0;  // 0: NCCL's choice
};
// By how much each named rank comes later to every collective than the others do.
using ArrivalSkew = std::vector<std::pair<int, fsdp::Nanos>>;

struct CaseSettings {
  DeviceKind device = DeviceKind::kCpu;
  Runtime runtime = Runtime::kShardscope;
  NamedModel model;
  Overrides set;
  int world = 2;
  int batch = 1;
  int seq = 0;  // 0: the model's
  int accumulate = 1;
  AccumulateSync accumulate_sync = AccumulateSync::kLast;
  WrapChoice wrap;
  fsdp::UnitOptions unit;  // strategy, reshard_after_forward, dtypes, layout; a plan file's entries go on top
  int forward_prefetch = 1;
  BackwardPrefetchChoice backward_prefetch;
  std::optional<fsdp::GateLimit> max_inflight;  // absent: auto
  int reduce_scatter_slots = 2;
  std::shared_ptr<const FileText> prefetch_order;  // null: recorded
  ReduceScatterCommunicator reduce_scatter_communicator = ReduceScatterCommunicator::kShared;
  fsdp::Dtype buffer_dtype = fsdp::Dtype::kFloat32;
  Checkpoint checkpoint = Checkpoint::kNone;
  fsdp::OptimizerKind optimizer = fsdp::OptimizerKind::kAdamW;
  std::optional<double> clip;
  CollectivesKind collectives = CollectivesKind::kAuto;
  CtaLimits nccl_ctas;
  NcclBuffers nccl_buffers = NcclBuffers::kPlain;
  std::optional<fsdp::Wire> wire;
  fsdp::Bytes memory_budget = fsdp::MemoryMeter::kNoBudget;
  HardwareChoice hardware;
  int ranks_per_node = 0;  // 0: the hardware's
  std::string network;     // empty: the hardware's
  ArrivalSkew arrival_skew;
  std::uint64_t seed = 0;
  int steps = 10;
  int warmup = 3;
  fsdp::Nanos step_timeout = 60'000'000'000;
};

// What part a setting has when cases are compared.
enum class Role : std::uint8_t {
  kWork,       // another value is another job, or the same one elsewhere: such cases are no choices for each other
  kPolicy,     // how the job is done: what a sweep chooses among
  kMeasuring,  // how long and how often it is measured
  kGuard,      // ends what hangs; measures nothing else
};

// One row of the settings table.
struct SettingRow {
  std::string name;      // "forward_prefetch"; the flag is --forward-prefetch
  std::string values;    // what --help shows: "0, 1, ..."
  std::string help;      // one line, with the unit
  std::string standard;  // default as text
  std::string heading;   // of --help
  Role role = Role::kPolicy;
  std::optional<DeviceKind> only;  // refused on other devices, unless it stands at its default
  bool number = false;             // JSON shows it as one, where its text is one
  std::function<void(CaseSettings& c, const std::string& text, FileTexts& files)> parse;
  std::function<std::string(const CaseSettings& c)> print;
  // The path in a text that names a file; empty in others. Null: never one.
  std::string (*file)(const std::string& text) = nullptr;
};
const std::vector<SettingRow>& setting_table();
// Throws fsdp::ConfigError with the nearest names.
const SettingRow& setting_row(const std::string& name);
bool has_role(const std::string& setting, Role role);  // false for a name that is no setting

using SettingTexts = std::vector<std::pair<std::string, std::string>>;
// Sets one setting from text; throws fsdp::ConfigError "what, what would be right" (the caller adds file and line).
// An unknown name lists the nearest ones. A file that the text names comes from `files`, or from the disk.
void apply_setting(CaseSettings& c, const std::string& name, const std::string& text);
void apply_setting(CaseSettings& c, const std::string& name, const std::string& text, FileTexts& files);
std::string setting_text(const CaseSettings& c, const std::string& name);  // canonical text of the present value
SettingTexts all_settings(const CaseSettings& c);                          // in table order
// The inverse; what `texts` leave out stands at its default.
CaseSettings settings_from(const SettingTexts& texts, FileTexts& files);
// `texts` with the defaults of settings that are newer than they.
SettingTexts with_defaults(SettingTexts texts);
std::string to_json(const CaseSettings& c);  // strings and numbers
// The files that the settings hold.
Files files_of(const CaseSettings& c);

// Checks settings against each other and against what this build can do. Throws ConfigError (bad), EnvironmentError
// (needs something that is absent: the text holds the remedy).
void validate(const CaseSettings& c);
// The same for `plan`, which runs nothing: every device and dtype is allowed.
void validate_for_plan(const CaseSettings& c);
// Sentences for the user about settings that are allowed but work against each other.
std::vector<std::string> setting_warnings(const CaseSettings& c);

// What follows from several settings. They throw ConfigError too.
ModelSettings model_of(const CaseSettings& c);
int seq_of(const CaseSettings& c);
fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c);

// Stable id: model family, wrap, and 12 hex digits of a hash of the canonical settings, e.g.
// "llama-block-1f0a9c3b77de".
std::string case_id(const CaseSettings& c);

}  // namespace harness
