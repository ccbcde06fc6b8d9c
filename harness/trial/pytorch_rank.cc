#include "harness/trial/pytorch_rank.h"

#include <nlohmann/json.hpp>

#include "fsdp/plan/unit_plan.h"
#include "harness/sweep/runtime_limits.h"
#include "harness/trial/case_units.h"

namespace harness {
namespace {
using Json = nlohmann::json;

Json model_json(const CaseSettings& c, const fsdp::ModuleTree& tree) {
  const ModelSettings m = model_of(c);
  Json frozen = Json::array();
  for (const fsdp::ParameterInfo& p : tree.parameters)
    if (!p.trainable) frozen.push_back(p.name);
  return {{"family", m.family},
          {"layers", m.layers},
          {"decoder_layers", m.decoders()},
          {"dim", m.dim},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"ffn", m.ffn},
          {"vocab", m.vocab},
          {"positions", m.positions},
          {"classes", m.classes},
          {"seq", seq_of(c)},
          {"tied", m.tied},
          {"gated", m.gated},
          {"norm_eps", m.norm_eps},
          {"rope_theta", m.rope_theta},
          {"rotary_pct", m.rotary_pct},
          {"parallel_residual", m.parallel_residual},
          {"relative_buckets", m.relative_buckets},
          {"relative_span", m.relative_span},
          {"frozen", std::move(frozen)},
          {"accumulate", c.accumulate}};
}

Json units_json(const CaseSettings& c, const fsdp::ModuleTree& tree) {
  const fsdp::UnitPlan plan = plan_of(c);
  check_runtime_units(c, plan);
  Json units = Json::array();
  for (const fsdp::UnitSpec& unit : plan.units) {
    Json modules = Json::array();
    for (const fsdp::ModuleId m : unit.modules) modules.push_back(tree.modules[static_cast<std::size_t>(m)].path);
    const fsdp::UnitOptions& o = unit.options;
    Json reshard = reshards_after_forward(unit);
    if (o.reshard_group > 1) reshard = o.reshard_group;
    units.push_back({{"name", unit.name},
                     {"modules", std::move(modules)},
                     {"root", unit.is_root},
                     {"reshard", std::move(reshard)},
                     {"param_dtype", name_of(o.param_dtype)},
                     {"reduce_dtype", name_of(o.reduce_dtype)},
                     {"output_dtype", o.output_dtype ? name_of(*o.output_dtype) : "auto"}});
  }
  return units;
}
}  // namespace

void PytorchRanks::set_program(LaunchOptions& launch) const {
  launch.program = user_python();
  launch.arguments = {scripts_.file("fsdp_rank.py")};
}

std::unique_ptr<PytorchRanks> pytorch_ranks_of(const CaseSettings& c) {
  return c.runtime == Runtime::kShardscope ? nullptr : std::make_unique<PytorchRanks>();
}

std::string job_line(const RankJob& job) {
  const CaseSettings& c = job.settings;
  if (c.runtime == Runtime::kShardscope) return to_json_line(job);
  const fsdp::ModuleTree tree = describe_model(model_of(c));
  Json line = Json::parse(to_json_line(job));
  line["pytorch"] = {{"model", model_json(c, tree)},
                     {"units", units_json(c, tree)},
                     {"group", c.unit.group},
                     {"step_timeout_s", static_cast<double>(c.step_timeout) / 1e9}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace harness
