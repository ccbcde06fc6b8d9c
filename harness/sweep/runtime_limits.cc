#include "harness/sweep/runtime_limits.h"

#include <fmt/format.h>

#include <string>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

struct Missing {
  const char *setting, *why;
  bool of_fsdp2_alone = false;
  bool in(Runtime r) const { return r != Runtime::kShardscope && (!of_fsdp2_alone || r == Runtime::kFsdp2); }
};
// What PyTorch's runtimes have no counterpart for.
constexpr Missing kMissing[] = {{"wire", "networks are emulated under this program's collectives alone"},
                                {"memory_budget", "PyTorch's allocator has no budget here"},
                                {"prefetch_order", "PyTorch prefetches in the order of the modules"},
                                {"reduce_scatter_slots", "PyTorch keeps one reduction's input until the next one"},
                                {"reduce_scatter_communicator", "PyTorch's choice cannot be set"},
                                {"nccl_ctas", "it is set by NCCL_MAX_CTAS there"},
                                {"nccl_buffers", "it is not set from here"},
                                {"buffer_dtype", "rotary tables are made in fp32 there"},
                                {"max_inflight", "fully_shard has no limit of gathers", true}};

// A setting that PyTorch has no counterpart for stands at its default.
void keep(const CaseSettings& c, const char* setting, const std::string& why) {
  const SettingRow& row = setting_row(setting);
  const std::string text = row.print(c);
  if (text == row.standard) return;
  throw fsdp::ConfigError(fmt::format("[{}] {} with --runtime {}: {}; leave it out, or use --runtime shardscope",
                                      setting, text, setting_text(c, "runtime"), why));
}
[[noreturn]] void refuse(const CaseSettings& c, const char* setting, const std::string& why) {
  throw fsdp::ConfigError(
      fmt::format("[{}] {} with --runtime {}: {}", setting, setting_text(c, setting), setting_text(c, "runtime"), why));
}

void check_both(const CaseSettings& c) {
  if (c.device == DeviceKind::kVirtual)
    refuse(c, "device", "the virtual world predicts this program's runtime; use --device cpu or cuda");
  if (model_of(c).family == "graph")
    refuse(c, "model", "a .pt2 has no Python that PyTorch's FSDP could wrap; use a preset or a config.json");
  if (c.collectives == CollectivesKind::kLocal)
    refuse(c, "collectives", "PyTorch's ranks on the CPU talk over Gloo; use auto or gloo");
  for (const Missing& m : kMissing)
    if (m.in(c.runtime)) keep(c, m.setting, m.why);
}

void check_fsdp2(const CaseSettings& c) {
  if (c.unit.strategy == fsdp::Strategy::kNoShard)
    refuse(c, "strategy", "fully_shard shards; use --runtime fsdp1 or shardscope");
  if (c.backward_prefetch.mode != fsdp::BackwardPrefetch::kPre)
    refuse(c, "backward_prefetch",
           "fully_shard gathers the next unit before a unit's backward, always; use pre, or pre:K");
}

void check_fsdp1(const CaseSettings& c) {
  if (c.unit.layout == fsdp::Layout::kPerParameter)
    refuse(c, "layout", "FullyShardedDataParallel has flat parameters; use flat, or --runtime fsdp2");
  if (c.unit.group > 0)
    refuse(c, "strategy",
           "its hybrid strategies do not run over Gloo, and are not mapped for NCCL; use --runtime fsdp2");
  if (c.forward_prefetch > 1)
    refuse(c, "forward_prefetch", "FullyShardedDataParallel looks one unit ahead; use 0 or 1");
  if (c.backward_prefetch.depth > 1)
    refuse(c, "backward_prefetch", "FullyShardedDataParallel looks one unit ahead; use pre, post or none");
  keep(c, "reshard_after_forward", "its strategies say it: full_shard frees, shard_grad_op keeps");
  keep(c, "output_dtype", "its mixed precision has none");
  if (c.max_inflight && c.max_inflight->kind != fsdp::GateLimit::Kind::kNone)
    refuse(c, "max_inflight", "its limiter is on or off; use auto, or none");
}

}  // namespace

CaseSettings case_under(Runtime runtime, CaseSettings c, std::vector<std::string>& changed) {
  c.runtime = runtime;
  for (const Missing& m : kMissing) {
    if (!m.in(runtime)) continue;
    const std::string text = setting_text(c, m.setting), standard = setting_row(m.setting).standard;
    if (text == standard) continue;
    changed.push_back(std::string(m.setting) + " " + text);
    apply_setting(c, m.setting, standard);
  }
  return c;
}

void check_runtime(const CaseSettings& c) {
  if (c.runtime == Runtime::kShardscope) return;
  check_both(c);
  c.runtime == Runtime::kFsdp2 ? check_fsdp2(c) : check_fsdp1(c);
}

void check_runtime_units(const CaseSettings& c, const fsdp::UnitPlan& plan) {
  if (c.runtime == Runtime::kShardscope) return;
  for (const fsdp::UnitSpec& unit : plan.units) {
    const fsdp::UnitOptions& o = unit.options;
    if (o.strategy != c.unit.strategy && (o.group > 0 || c.unit.group > 0 || c.runtime == Runtime::kFsdp1))
      throw fsdp::ConfigError(
          fmt::format("[wrap] unit {} has the strategy {}, the others {}: with --runtime {} all "
                      "have one",
                      unit.name, name_of(o.strategy), name_of(c.unit.strategy), setting_text(c, "runtime")));
    if (c.runtime == Runtime::kFsdp1 && unit.modules.size() > 1 && !unit.is_root)
      throw fsdp::ConfigError(
          fmt::format("[wrap] unit {} holds {} modules: FullyShardedDataParallel wraps one module a "
                      "unit; use block, class:NAME or root, or --runtime fsdp2",
                      unit.name, unit.modules.size()));
  }
}

}  // namespace harness
