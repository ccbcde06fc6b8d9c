// Checks of settings against each other, what follows from several of them, and the case id.
#include <fmt/format.h>

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/cost/cost_model.h"
#include "harness/sweep/cuda_support.h"
#include "harness/sweep/runtime_limits.h"
#include "harness/sweep/settings.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

const char* name_of(DeviceKind device) {
  return device == DeviceKind::kCpu ? "cpu" : device == DeviceKind::kCuda ? "cuda" : "virtual";
}

// Settings of one device stand at their defaults on the others.
void check_devices(const CaseSettings& c) {
  for (const SettingRow& row : setting_table()) {
    if (!row.only || *row.only == c.device || row.print(c) == row.standard) continue;
    throw fsdp::ConfigError(fmt::format("[{}] is for device {} alone; leave it out, or use --device {}", row.name,
                                        name_of(*row.only), name_of(*row.only)));
  }
}

// Group sizes must divide the ranks they are cut from.
void check_groups(const CaseSettings& c) {
  fsdp::UnitPlan units;
  const auto add = [&](const std::string& name, const fsdp::UnitOptions& o) {
    units.units.emplace_back().name = name;
    units.units.back().options = o;
  };
  add("of the settings", c.unit);
  if (const auto* file = std::get_if<fsdp::WrapPlan>(&c.wrap.policy)) {
    for (const fsdp::PlanLine& line : file->lines)
      add(fmt::format("{}:{}", file->file, line.line), fsdp::options_of(line, c.unit));
  }
  fsdp::groups_of(units, c.world);
}

void check_collectives(const CaseSettings& c) {
  const CollectivesKind kind = c.collectives;
  if (kind == CollectivesKind::kNccl && c.device != DeviceKind::kCuda) {
    throw fsdp::ConfigError(
        fmt::format("[collectives] nccl needs device cuda, not {}; use auto, local or gloo", name_of(c.device)));
  }
  if (c.device == DeviceKind::kCuda && kind != CollectivesKind::kAuto && kind != CollectivesKind::kNccl) {
    throw fsdp::ConfigError(
        fmt::format("[collectives] device cuda has nccl, not {}; use auto", setting_text(c, "collectives")));
  }
  if (kind == CollectivesKind::kGloo && c.device != DeviceKind::kCpu) {
    throw fsdp::ConfigError(fmt::format("[collectives] gloo needs device cpu, not {}; use auto", name_of(c.device)));
  }
}

void check_each_other(const CaseSettings& c) {
  check_devices(c);
  const ModelSettings model = model_of(c);
  check_sequence(model, seq_of(c));
  check_batch(model, c.batch);
  if (c.unit.group > 0 && c.world % c.unit.group != 0) {
    throw fsdp::ConfigError(fmt::format("[strategy] {} does not divide world {}; use a group size that does",
                                        setting_text(c, "strategy"), c.world));
  }
  check_groups(c);
  for (const auto& [rank, late] : c.arrival_skew) {
    if (rank < c.world) continue;
    throw fsdp::ConfigError(fmt::format("[arrival_skew] there is no rank {} in a world of {}; ranks are 0 to {}", rank,
                                        c.world, c.world - 1));
  }
  check_collectives(c);
  check_runtime(c);
  if (c.device == DeviceKind::kVirtual && c.hardware.costs) {
    const CostModel costs = make_cost_model(*c.hardware.costs, c.hardware.name, c.world, c.ranks_per_node, c.network);
    if (c.unit.param_dtype == fsdp::Dtype::kBFloat16)
      costs.op("linear", {OpKind::kGemm, true, {}, 0});  // refuses what it has no rate for
  }
}

// A part of a case id: letters, digits and a few marks, short.
std::string id_part(const std::string& text, std::size_t longest) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_') {
      out += c;
    } else if (!out.empty() && out.back() != '_' && c != ':') {
      out += '_';
    }
    if (out.size() == longest) break;
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::string stem(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  return file.substr(0, file.find_last_of('.'));
}

// A model's file counts by its content, whose fingerprint stands beside it, and by its name, not by its place.
std::string without_place(std::string text, const ModelSettings& model) {
  const std::string place = "file=" + model.file;
  const std::size_t at = model.file.empty() ? std::string::npos : text.find(place);
  return at == std::string::npos ? text : text.erase(at, place.size());
}

}  // namespace

void validate(const CaseSettings& c) {
  if (c.device == DeviceKind::kCuda && c.runtime == Runtime::kShardscope) require_cuda();
  check_each_other(c);
}

void validate_for_plan(const CaseSettings& c) { check_each_other(c); }

std::vector<std::string> setting_warnings(const CaseSettings& c) {
  std::vector<std::string> out;
  const fsdp::SchedulerOptions o = scheduler_options_of(c);
  const int depth =
      std::max(o.forward_prefetch, o.backward_prefetch == fsdp::BackwardPrefetch::kPre ? o.backward_depth : 0);
  if (o.max_inflight.kind == fsdp::GateLimit::Kind::kUnits && o.max_inflight.value < depth + 1) {
    out.push_back(fmt::format(
        "max_inflight {} is below the prefetch depth of {} asked for: {} units can be ahead; use auto or {}",
        o.max_inflight.value, depth, o.max_inflight.value - 1, depth + 1));
  }
  if (c.world == 1 && c.unit.strategy != fsdp::Strategy::kNoShard)
    out.push_back("world 1 shards nothing: there is no communication to overlap");
  for (std::string& note : model_notes(model_of(c))) out.push_back(std::move(note));
  return out;
}

ModelSettings model_of(const CaseSettings& c) { return resolve_model(c.model.dimensions, c.set); }

int seq_of(const CaseSettings& c) { return c.seq > 0 ? c.seq : static_cast<int>(model_of(c).seq); }

fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c) {
  fsdp::SchedulerOptions o;
  o.forward_prefetch = c.forward_prefetch;
  o.backward_prefetch = c.backward_prefetch.mode;
  o.backward_depth = c.backward_prefetch.depth;
  o.max_inflight = c.max_inflight.value_or(fsdp::auto_gate(o.forward_prefetch, o.backward_prefetch, o.backward_depth));
  o.reduce_scatter_slots = c.reduce_scatter_slots;
  o.own_reduce_scatter_communicator = c.reduce_scatter_communicator == ReduceScatterCommunicator::kOwn;
  return o;
}

// Only settings that differ from their defaults enter, so that a setting added later leaves old ids alone; a plan
// file, a prefetch order counts by its content, as a config.json does (the model's text says all of it).
std::string case_id(const CaseSettings& c) {
  std::string canonical;
  for (const SettingRow& row : setting_table()) {
    std::string text = row.print(c);
    if (row.name == "model") text = without_place(std::move(text), c.model.dimensions);
    if (text != row.standard) canonical += row.name + "=" + text + "\n";
  }
  std::string wrap = c.wrap.text;
  if (c.wrap.file) {
    canonical += c.wrap.file->text;
    wrap = "plan_" + stem(c.wrap.file->path);
  }
  if (c.prefetch_order) canonical += c.prefetch_order->text;
  return fmt::format("{}-{}-{}", id_part(model_name(c.model.text), 32), id_part(wrap, 24),
                     hex(text_hash(canonical), 12));
}

}  // namespace harness
