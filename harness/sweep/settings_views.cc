// Typed views of the settings, their checks against each other, what this version refuses, and the case id.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "fsdp/core/errors.h"
#include "fsdp/core/memory_meter.h"
#include "fsdp/plan/shard_layout.h"
#include "fsdp/plan/wrap_policy.h"
#include "harness/cost/cost_model.h"
#include "harness/sweep/cuda_support.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/settings.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

bool starts_with(const std::string& text, const char* head) { return text.rfind(head, 0) == 0; }

// What this version does not do yet. A row goes when the work that brings the setting lands.
struct Refusal {
  bool (*applies)(const CaseSettings& c);
  bool for_plan;     // `plan` refuses it too
  bool environment;  // absent from this build: exit code 3 instead of 2
  const char* text;
};
constexpr Refusal kRefusals[] = {
    {[](const CaseSettings& c) { return c.device != "cuda" && c.nccl_ctas != "auto"; }, true, false,
     "[nccl_ctas] is for device cuda alone; leave it out, or use --device cuda"},
    {[](const CaseSettings& c) { return c.device != "cuda" && c.nccl_buffers != "plain"; }, true, false,
     "[nccl_buffers] is for device cuda alone; leave it out, or use --device cuda"},
    {[](const CaseSettings& c) { return c.device != "virtual" && !c.hardware.empty(); }, true, false,
     "[hardware] is for device virtual alone; leave it out, or use --device virtual"},
    {[](const CaseSettings& c) { return c.device != "virtual" && !c.network.empty(); }, true, false,
     "[network] is for device virtual alone; leave it out, or use --device virtual"},
    {[](const CaseSettings& c) { return c.device != "virtual" && c.ranks_per_node != 0; }, true, false,
     "[ranks_per_node] is for device virtual alone; leave it out, or use --device virtual"},
    {[](const CaseSettings& c) { return c.device != "virtual" && c.arrival_skew != "none"; }, true, false,
     "[arrival_skew] is for device virtual alone; leave it out, or use --device virtual"},
};

void check_support(const CaseSettings& c, bool plan) {
  for (const Refusal& r : kRefusals) {
    if ((plan && !r.for_plan) || !r.applies(c)) continue;
    if (r.environment) throw fsdp::EnvironmentError(r.text);
    throw fsdp::ConfigError(r.text);
  }
}

// Group sizes must divide the ranks they are cut from.
void check_groups(const CaseSettings& c) {
  fsdp::UnitPlan units;
  const auto add = [&](const std::string& name, const fsdp::UnitOptions& o) {
    units.units.emplace_back().name = name;
    units.units.back().options = o;
  };
  add("of the settings", unit_options_of(c));
  const fsdp::WrapPolicy policy = fsdp::parse_wrap(c.wrap, unit_options_of(c));
  if (const auto* file = std::get_if<fsdp::WrapPlan>(&policy)) {
    for (const fsdp::PlanLine& line : file->lines) add(fmt::format("{}:{}", file->file, line.line), line.options);
  }
  fsdp::groups_of(units, c.world);
}

void check_each_other(const CaseSettings& c) {
  check_sequence(model_of(c), seq_of(c));
  check_batch(model_of(c), c.batch);
  if (const int group = unit_options_of(c).group; group > 0) {
    if (c.world % group != 0) {
      throw fsdp::ConfigError(
          fmt::format("[strategy] {} does not divide world {}; use a group size that does", c.strategy, c.world));
    }
  }
  check_groups(c);
  arrival_skew_of(c);
  if (c.collectives == "nccl" && c.device != "cuda") {
    throw fsdp::ConfigError(
        fmt::format("[collectives] nccl needs device cuda, not {}; use auto, local or gloo", c.device));
  }
  if (c.device == "virtual" && !c.hardware.empty()) {
    const CostModel costs = make_cost_model(c.hardware, c.world, c.ranks_per_node, c.network);
    if (c.param_dtype == "bf16") costs.op("linear", {OpKind::kGemm, true, {}, 0});  // refuses what it has no rate for
  }
  if (c.device == "cuda" && c.collectives != "auto" && c.collectives != "nccl") {
    throw fsdp::ConfigError(fmt::format("[collectives] device cuda has nccl, not {}; use auto", c.collectives));
  }
  if (c.collectives == "gloo" && c.device != "cpu") {
    throw fsdp::ConfigError(fmt::format("[collectives] gloo needs device cpu, not {}; use auto", c.device));
  }
}

std::string file_content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
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

}  // namespace

void validate(const CaseSettings& c) {
  if (c.device == "cuda") require_cuda();
  check_support(c, false);
  check_each_other(c);
}

void validate_for_plan(const CaseSettings& c) {
  check_support(c, true);
  check_each_other(c);
}

std::vector<std::string> setting_warnings(const CaseSettings& c) {
  std::vector<std::string> out;
  const fsdp::SchedulerOptions o = scheduler_options_of(c);
  const int depth =
      std::max(o.forward_prefetch, o.backward_prefetch == fsdp::BackwardPrefetch::kPre ? o.backward_depth : 0);
  if (o.max_inflight.kind == fsdp::GateLimit::Kind::kUnits && o.max_inflight.value < depth + 1) {
    out.push_back(fmt::format(
        "max_inflight {} is below the prefetch depth of {} asked for: {} units can be ahead; use auto or {}",
        c.max_inflight, depth, o.max_inflight.value - 1, depth + 1));
  }
  if (c.world == 1 && c.strategy != "no_shard")
    out.push_back("world 1 shards nothing: there is no communication to overlap");
  for (std::string& note : model_notes(model_of(c))) out.push_back(std::move(note));
  return out;
}

ModelSettings model_of(const CaseSettings& c) { return resolve_model(c.model, c.set); }

int seq_of(const CaseSettings& c) { return c.seq > 0 ? c.seq : static_cast<int>(model_of(c).seq); }

fsdp::UnitOptions unit_options_of(const CaseSettings& c) {
  fsdp::UnitOptions o;
  fsdp::apply_unit_option(o, "strategy", c.strategy);
  fsdp::apply_unit_option(o, "reshard_after_forward", c.reshard_after_forward);
  fsdp::apply_unit_option(o, "param_dtype", c.param_dtype);
  fsdp::apply_unit_option(o, "reduce_dtype", c.reduce_dtype);
  fsdp::apply_unit_option(o, "output_dtype", c.output_dtype);
  o.layout = c.layout == "per_parameter" ? fsdp::Layout::kPerParameter : fsdp::Layout::kFlat;
  return o;
}

fsdp::SchedulerOptions scheduler_options_of(const CaseSettings& c) {
  fsdp::SchedulerOptions o;
  o.forward_prefetch = c.forward_prefetch;
  const std::string& mode = c.backward_prefetch;
  o.backward_prefetch = mode == "none"   ? fsdp::BackwardPrefetch::kNone
                        : mode == "post" ? fsdp::BackwardPrefetch::kPost
                                         : fsdp::BackwardPrefetch::kPre;
  if (starts_with(mode, "pre:")) o.backward_depth = static_cast<int>(whole_number(mode.substr(4)).value_or(1));
  if (c.max_inflight == "auto") {
    o.max_inflight = fsdp::auto_gate(o.forward_prefetch, o.backward_prefetch, o.backward_depth);
  } else if (c.max_inflight == "none") {
    o.max_inflight = {fsdp::GateLimit::Kind::kNone, 0};
  } else if (const auto units = whole_number(c.max_inflight)) {
    o.max_inflight = {fsdp::GateLimit::Kind::kUnits, *units};
  } else {
    o.max_inflight = {fsdp::GateLimit::Kind::kBytes, parse_bytes(c.max_inflight)};
  }
  o.reduce_scatter_slots = c.reduce_scatter_slots;
  o.own_reduce_scatter_communicator = c.reduce_scatter_communicator == "own";
  return o;
}

CtaLimits nccl_ctas_of(const CaseSettings& c) {
  if (c.nccl_ctas == "auto") return {};
  const auto parts = split(c.nccl_ctas, '-');
  return {parts.size() == 2 ? std::stoi(parts[0]) : 0, std::stoi(parts.back())};
}

Wire wire_of(const CaseSettings& c) {
  if (c.wire == "none") return {};
  const auto parts = split(c.wire, ',');
  if (parts.size() != 2)
    throw fsdp::ConfigError(
        fmt::format("[wire] \"{}\" is not LATENCY,BANDWIDTH; use for instance 50us,10GB/s", c.wire));
  return {true, parse_nanos(parts[0]), parse_bytes_per_second(parts[1])};
}

std::vector<std::pair<int, fsdp::Nanos>> arrival_skew_of(const CaseSettings& c) {
  std::vector<std::pair<int, fsdp::Nanos>> out;
  if (c.arrival_skew == "none") return out;
  for (const std::string& part : split(c.arrival_skew, ',')) {
    const auto fields = split(part, ':');
    out.emplace_back(std::stoi(fields.at(0)), parse_nanos(fields.at(1)));
    if (out.back().first >= c.world) {
      throw fsdp::ConfigError(fmt::format("[arrival_skew] there is no rank {} in a world of {}; ranks are 0 to {}",
                                          out.back().first, c.world, c.world - 1));
    }
  }
  return out;
}

std::optional<double> clip_of(const CaseSettings& c) {
  if (c.clip == "none") return std::nullopt;
  return std::stod(c.clip);
}

fsdp::Bytes memory_budget_of(const CaseSettings& c) {
  return c.memory_budget == "none" ? fsdp::MemoryMeter::kNoBudget : parse_bytes(c.memory_budget);
}

fsdp::Nanos step_timeout_of(const CaseSettings& c) { return parse_nanos(c.step_timeout); }

// Only settings that differ from their defaults enter, so that a setting added later leaves old ids alone; a plan
// file, a prefetch order counts by its content, as a config.json does (the model's text says all of it).
std::string case_id(const CaseSettings& c) {
  std::string canonical;
  for (std::size_t i = 0; i < setting_table().size(); ++i) {
    const SettingInfo& info = setting_table()[i];
    const std::string text = setting_text(c, info.name);
    if (text != info.standard) canonical += info.name + "=" + text + "\n";
  }
  std::string wrap = c.wrap;
  if (starts_with(wrap, "plan:")) {
    canonical += file_content(wrap.substr(5));
    wrap = "plan_" + stem(wrap.substr(5));
  }
  if (c.prefetch_order != "recorded") canonical += file_content(c.prefetch_order);
  return fmt::format("{}-{}-{}", id_part(model_name(c.model), 32), id_part(wrap, 24), hex(text_hash(canonical), 12));
}

}  // namespace harness
