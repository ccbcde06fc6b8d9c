#include <fmt/format.h>

#include "fsdp/core/errors.h"
#include "harness/advise/snippet.h"

namespace harness {
namespace {

using namespace snippet_detail;

std::string strategy_of(const fsdp::UnitSpec& unit) {
  switch (unit.options.strategy) {
    case fsdp::Strategy::kNoShard:
      return "NO_SHARD";
    case fsdp::Strategy::kHybridShard:
      return "HYBRID_SHARD";
    case fsdp::Strategy::kHybridShardZero2:
      return "_HYBRID_SHARD_ZERO2";
    default:
      // The root is kept after forward by FSDP1 itself.
      return unit.is_root && unit.options.strategy == fsdp::Strategy::kFullShard ? "FULL_SHARD"
             : fsdp::reshards_after_forward(unit)                                ? "FULL_SHARD"
                                                                                 : "SHARD_GRAD_OP";
  }
}

std::string precision_of(const fsdp::UnitOptions& o) {
  if (o.param_dtype == fsdp::Dtype::kFloat32 && o.reduce_dtype == fsdp::Dtype::kFloat32) return "None";
  return fmt::format("MixedPrecision(param_dtype={}, reduce_dtype={})", torch_dtype(o.param_dtype),
                     torch_dtype(o.reduce_dtype));
}

std::string options_of(const fsdp::UnitSpec& unit) {
  return fmt::format("dict(sharding_strategy=ShardingStrategy.{}, mixed_precision={})", strategy_of(unit),
                     precision_of(unit.options));
}

std::vector<std::string> notes_of(const Policy& p) {
  std::vector<std::string> notes;
  const CaseSettings& c = p.settings;
  if (c.forward_prefetch > 1)
    notes.push_back(fmt::format("FSDP1 prefetches one unit ahead in forward, not {}", c.forward_prefetch));
  if (c.backward_prefetch.depth > 1)
    notes.push_back("FSDP1 prefetches one unit ahead in backward, not as in " + setting_text(c, "backward_prefetch"));
  if (c.unit.reshard_group == 0 && c.unit.reshard_after_forward == true)
    notes.push_back("FSDP1 keeps the root after forward");
  if (c.unit.reshard_group > 1) notes.push_back("FSDP1 has no reshard to a group size");
  if (c.reduce_scatter_communicator == ReduceScatterCommunicator::kOwn)
    notes.push_back("FSDP1 reduces on the communicator of its process group");
  return notes;
}

std::string backward_of(const CaseSettings& c) {
  if (c.backward_prefetch.mode == fsdp::BackwardPrefetch::kNone) return "None";
  return c.backward_prefetch.mode == fsdp::BackwardPrefetch::kPost ? "BackwardPrefetch.BACKWARD_POST"
                                                                   : "BackwardPrefetch.BACKWARD_PRE";
}

}  // namespace

std::string fsdp1_snippet(const Policy& p) {
  if (const auto why = fsdp1_obstacle(p)) throw fsdp::ConfigError(fmt::format("[--format] {}; use fsdp2", *why));
  std::vector<ListedUnit> units;
  bool any_mixed = precision_of(root_options(p)) != "None";
  for (const fsdp::UnitSpec* u : units_without_root(p.plan)) {
    units.push_back({module_names(p, *u), options_of(*u)});
    any_mixed = any_mixed || precision_of(u->options) != "None";
  }
  fsdp::UnitSpec root;
  root.is_root = true;
  root.options = root_options(p);
  std::string out = header(p, "FSDP1 policy", notes_of(p));
  const std::vector<std::string> checkpoint = checkpoint_lines(p);
  if (any_mixed) out += "import torch\n";
  const int group = root.options.group;
  if (!checkpoint.empty())
    out += "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\n";
  if (group > 0) out += "import torch.distributed\nfrom torch.distributed.device_mesh import init_device_mesh\n";
  out +=
      fmt::format("from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, {}ShardingStrategy\n",
                  any_mixed ? "MixedPrecision, " : "");
  out += "from torch.distributed.fsdp.wrap import CustomPolicy\n\n\n" + name_finder(p);
  out += fmt::format("def wrap_model(model, device_id=None{}):\n", group > 0 ? ", device_type=\"cuda\"" : "");
  out += "    \"\"\"Returns the wrapped model; after init_process_group, before the optimizer is made.\"\"\"\n";
  for (const std::string& l : checkpoint) out += "    " + l + "\n";
  out += "    units = [  # in the order of execution\n";
  for (const std::string& l : list_units(units)) out += "        " + l + "\n";
  out += "    ]\n";
  out += "    options = {" + get_module(p) + ": extra for (name,), extra in units}\n";
  if (group > 0)
    out += fmt::format(
        "    world = torch.distributed.get_world_size()\n"
        "    mesh = init_device_mesh(device_type, (world // {0}, {0}), mesh_dim_names=(\"replicate\", \"shard\"))\n",
        group);
  out += "    return FullyShardedDataParallel(\n        model,\n";
  out += "        auto_wrap_policy=CustomPolicy(lambda module: options.get(module, False)),\n";
  out += fmt::format("        sharding_strategy=ShardingStrategy.{},\n        mixed_precision={},\n", strategy_of(root),
                     precision_of(root.options));
  out += fmt::format("        backward_prefetch={},\n        forward_prefetch={},\n", backward_of(p.settings),
                     p.settings.forward_prefetch > 0 ? "True" : "False");
  out += fmt::format("        limit_all_gathers={},\n",
                     setting_text(p.settings, "max_inflight") == "none" ? "False" : "True");
  if (group > 0) out += "        device_mesh=mesh,\n";
  return out + "        use_orig_params=True,\n        device_id=device_id,\n    )\n";
}

}  // namespace harness
