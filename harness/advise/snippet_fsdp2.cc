#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>

#include "harness/advise/snippet.h"

namespace harness {
namespace {

using namespace snippet_detail;

bool mixed(const fsdp::UnitOptions& o) {
  return o.param_dtype != fsdp::Dtype::kFloat32 || o.reduce_dtype != fsdp::Dtype::kFloat32 || o.output_dtype;
}

std::string mesh_of(const fsdp::UnitOptions& o) {
  switch (o.strategy) {
    case fsdp::Strategy::kNoShard:
      return "replicas";
    case fsdp::Strategy::kHybridShard:
    case fsdp::Strategy::kHybridShardZero2:
      return fmt::format("hybrid{}", o.group);
    default:
      return "mesh";
  }
}

// The keyword arguments of fully_shard for a unit, as a Python expression.
std::string options_of(const fsdp::UnitSpec& unit) {
  std::string out = fmt::format("dict(mesh={}, reshard_after_forward={}", mesh_of(unit.options), reshard_text(unit));
  if (mixed(unit.options))
    out += fmt::format(", mp_policy=MixedPrecisionPolicy(param_dtype={}, reduce_dtype={}{})",
                       torch_dtype(unit.options.param_dtype), torch_dtype(unit.options.reduce_dtype),
                       unit.options.output_dtype ? ", output_dtype=" + torch_dtype(*unit.options.output_dtype) : "");
  return out + ")";
}

std::vector<std::string> notes_of(const Policy& p) {
  std::vector<std::string> notes;
  const CaseSettings& c = p.settings;
  if (c.backward_prefetch.mode == fsdp::BackwardPrefetch::kPost)
    notes.push_back("FSDP2 has no prefetch after a unit's backward; its nearest is none, which is used here");
  if (c.forward_prefetch == 0)
    notes.push_back("no forward prefetch lists: FSDP2 then overlaps only as far as the host runs ahead");
  if (c.max_inflight)
    notes.push_back("max_inflight " + setting_text(c, "max_inflight") +
                    " has no counterpart in FSDP2; the prefetch lists bound it");
  if (c.reduce_scatter_communicator == ReduceScatterCommunicator::kOwn)
    notes.push_back("FSDP2 reduces on the communicator of its mesh");
  return notes;
}

std::vector<std::string> mesh_lines(const Policy& p) {
  bool plain = root_unit(p.plan) == nullptr && mesh_of(root_options(p)) == "mesh", replicas = false;
  std::map<std::string, int> hybrid;  // name of the mesh, ranks of a group
  for (const fsdp::UnitSpec& u : p.plan.units) {
    const std::string mesh = mesh_of(u.options);
    plain = plain || mesh == "mesh";
    replicas = replicas || mesh == "replicas";
    if (mesh.starts_with("hybrid")) hybrid[mesh] = u.options.group;
  }
  std::vector<std::string> lines = {"world = torch.distributed.get_world_size()"};
  if (plain) lines.push_back("mesh = init_device_mesh(device_type, (world,))");
  if (replicas)
    lines.push_back(
        "replicas = init_device_mesh(device_type, (world, 1), mesh_dim_names=(\"replicate\", \"shard\"))  # no_shard");
  for (const auto& [name, group] : hybrid)
    lines.push_back(fmt::format(
        "{0} = init_device_mesh(device_type, (world // {1}, {1}), mesh_dim_names=(\"replicate\", \"shard\"))", name,
        group));
  return lines;
}

int backward_depth(const CaseSettings& c) {
  const fsdp::SchedulerOptions o = scheduler_options_of(c);
  return o.backward_prefetch == fsdp::BackwardPrefetch::kPre ? o.backward_depth : 0;
}

std::vector<std::string> prefetch_lines(const Policy& p) {
  const int forward = p.settings.forward_prefetch, backward = backward_depth(p.settings);
  std::vector<std::string> lines = {"order = [" + get_module(p) + " for (name, *_), _ in units]"};
  if (forward > 0 && root_unit(p.plan) != nullptr)
    lines.push_back(fmt::format("model.set_modules_to_forward_prefetch(order[:{}])", forward));
  lines.push_back("for i, module in enumerate(order):");
  if (forward > 0)
    lines.push_back(fmt::format("    module.set_modules_to_forward_prefetch(order[i + 1 : i + {}])", 1 + forward));
  if (backward > 0)
    lines.push_back(
        fmt::format("    module.set_modules_to_backward_prefetch(order[max(0, i - {}) : i][::-1])", backward));
  else
    lines.push_back("    module.set_modules_to_backward_prefetch([module])  # itself: switches the default one off");
  return lines;
}

std::string root_call(const Policy& p) {
  if (const fsdp::UnitSpec* root = root_unit(p.plan)) return fmt::format("fully_shard(model, **{})", options_of(*root));
  fsdp::UnitSpec empty;
  empty.is_root = true;
  empty.options = p.settings.unit;
  return fmt::format("fully_shard(model, **{})  # owns no parameters itself", options_of(empty));
}

std::string indented(const std::vector<std::string>& lines, const std::string& by = "    ") {
  std::string out;
  for (const std::string& l : lines) out += by + l + "\n";
  return out;
}

}  // namespace

std::string fsdp2_snippet(const Policy& p) {
  std::vector<ListedUnit> units;
  bool any_mixed = mixed(root_options(p));
  for (const fsdp::UnitSpec* u : units_without_root(p.plan)) {
    units.push_back({module_names(p, *u), options_of(*u)});
    any_mixed = any_mixed || mixed(u->options);
  }
  std::string out = header(p, "FSDP2 policy", notes_of(p));
  out += "import torch\n";
  const std::vector<std::string> checkpoint = checkpoint_lines(p);
  if (!checkpoint.empty())
    out += "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\n";
  out += "from torch.distributed.device_mesh import init_device_mesh\n";
  out +=
      fmt::format("from torch.distributed.fsdp import {}fully_shard\n\n\n", any_mixed ? "MixedPrecisionPolicy, " : "");
  out += name_finder(p) + "def apply_policy(model, device_type=\"cuda\"):\n";
  out += "    \"\"\"Shards the model in place; after init_process_group, before the optimizer is made.\"\"\"\n";
  out += indented(checkpoint) + indented(mesh_lines(p));
  if (!units.empty()) {
    out += "    units = [  # in the order of execution: modules, options of fully_shard\n";
    out += indented(list_units(units), "        ");
    out += "    ]\n";
    out += "    for names, options in reversed(units):  # inner modules before those that hold them\n";
    out += "        modules = [" + get_module(p) + " for name in names]\n";
    out += "        fully_shard(modules if len(modules) > 1 else modules[0], **options)\n";
  }
  out += "    " + root_call(p) + "\n";
  if (!units.empty()) out += indented(prefetch_lines(p));
  return out + "    return model\n";
}

}  // namespace harness
