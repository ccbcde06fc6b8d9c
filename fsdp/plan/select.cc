// Policies that go by the model's structure: blocks, sublayers, size.
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/plan/selection.h"

namespace fsdp {
namespace {

// The default force_leaf_modules of torch's size_based_auto_wrap_policy (torch/distributed/fsdp/wrap.py). Neither
// entered nor wrapped.
bool is_forced_leaf(const ModuleInfo& m) { return m.type == "MultiheadAttention"; }

// The recursion of torch's _recursive_wrap with the questions of size_based_auto_wrap_policy. Tied parameters count
// once, at their lowest common owner, so the counts of children add up to that of their parent.
class SizeWalk {
 public:
  SizeWalk(const ModuleTree& tree, Count min_params, Selection& selection)
      : tree_(tree), min_(min_params), selection_(selection), total_(tree.modules.size(), 0) {
    const auto owners = owners_of(tree);
    for (std::size_t p = 0; p < owners.size(); ++p) {
      total_[lowest_common_owner(tree, owners[p])] += tree.parameters[p].numel();
      if (owners[p].front() != owners[p].back()) selection.ties_change_the_choice = true;
    }
    for (std::size_t m = total_.size(); m-- > 1;) total_[tree.modules[m].parent] += total_[m];
  }

  // Returns how many parameters of the subtree are in units.
  Count visit(ModuleId id) {
    const ModuleInfo& m = tree_.modules[id];
    const Count n = total_[id];
    std::string& reason = selection_.reasons[id];
    if (n < min_) {
      reason = std::to_string(n) + " parameters are below " + std::to_string(min_) + ": not entered";
      return 0;
    }
    if (is_forced_leaf(m)) {
      reason = m.type + " is neither entered nor a unit";
      return 0;
    }
    Count in_units = 0;
    for (ModuleId child : m.children) in_units += visit(child);
    const Count remainder = n - in_units;
    if (id == 0) return in_units;
    if (remainder < min_) {
      reason = "remainder " + std::to_string(remainder) + " is below " + std::to_string(min_);
      return in_units;
    }
    if (is_container(m)) {
      reason = m.type + " is entered, never a unit";
      return in_units;
    }
    if (!m.no_unit.empty()) {
      reason = "no unit can start here: " + m.no_unit;
      return in_units;
    }
    reason = "remainder " + std::to_string(remainder) + " reaches " + std::to_string(min_);
    selection_.groups.push_back({{id}, selection_.root});
    return n;
  }

 private:
  const ModuleTree& tree_;
  Count min_;
  Selection& selection_;
  std::vector<Count> total_;
};

}  // namespace

bool is_container(const ModuleInfo& m) { return m.type == "ModuleList" || m.type == "ModuleDict"; }

Selection select_blocks(const ModuleTree& tree, const WrapBlocks& policy, const UnitOptions& defaults) {
  SHARDSCOPE_CHECK(policy.per_unit >= 1, std::to_string(policy.per_unit));
  Selection s(tree, defaults);
  for (const ModuleInfo& list : tree.modules) {
    std::vector<ModuleId> open;
    const auto close = [&] {
      if (!open.empty()) s.groups.push_back({std::exchange(open, {}), defaults});
    };
    for (ModuleId child : list.children) {
      if (!tree.modules[child].is_block) {
        close();
        continue;
      }
      s.reasons[child] = "a block";
      open.push_back(child);
      if (static_cast<int>(open.size()) == policy.per_unit) close();
    }
    close();
  }
  if (s.groups.empty()) {
    throw ConfigError("[wrap] this model (" + tree.modules[0].type +
                      ") has no repeated blocks; use root, size:MIN_PARAMS or class:Name");
  }
  return s;
}

namespace {

// What runs in the block: its children, and those of lists among them.
std::vector<ModuleId> children_of(const ModuleTree& tree, const ModuleInfo& block) {
  std::vector<ModuleId> out;
  for (ModuleId child : block.children) {
    const ModuleInfo& m = tree.modules[child];
    if (is_container(m))
      out.insert(out.end(), m.children.begin(), m.children.end());
    else
      out.push_back(child);
  }
  return out;
}

}  // namespace

Selection select_sublayers(const ModuleTree& tree, const UnitOptions& defaults) {
  Selection s(tree, defaults);
  for (const ModuleInfo& block : tree.modules) {
    if (!block.is_block) continue;
    std::vector<ModuleId> open;
    for (ModuleId child : children_of(tree, block)) {
      if (tree.modules[child].is_sublayer_start) {
        if (!open.empty()) s.groups.push_back({std::exchange(open, {}), defaults});
        s.reasons[child] = "starts a sublayer";
      } else if (open.empty()) {
        s.reasons[child] = "before the first sublayer of its block";
        continue;
      }
      open.push_back(child);
    }
    if (!open.empty()) s.groups.push_back({std::move(open), defaults});
  }
  if (s.groups.empty()) {
    throw ConfigError("[wrap] this model (" + tree.modules[0].type +
                      ") has no blocks with sublayers; use block, root, size:MIN_PARAMS or class:Name");
  }
  return s;
}

Selection select_by_size(const ModuleTree& tree, const WrapSize& policy, const UnitOptions& defaults) {
  if (policy.min_params < 1) {
    throw ConfigError("[wrap] size:" + std::to_string(policy.min_params) +
                      " is not a threshold; give the least number of parameters of a unit, at least 1");
  }
  Selection s(tree, defaults);
  SizeWalk(tree, policy.min_params, s).visit(0);
  return s;
}

}  // namespace fsdp
