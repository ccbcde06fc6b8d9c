// The two halves of make_unit_plan: a policy selects modules, and the selection is assembled into units. Used inside
// this room only.
#pragma once
#include <string>
#include <vector>

#include "fsdp/plan/module_tree.h"
#include "fsdp/plan/unit_plan.h"
#include "fsdp/plan/wrap_policy.h"

namespace fsdp {

struct UnitGroup {
  std::vector<ModuleId> modules;  // ascending; one, or several in FSDP2's list form
  UnitOptions options;
};

struct Selection {
  explicit Selection(const ModuleTree& tree, const UnitOptions& defaults)
      : root(defaults), reasons(tree.modules.size()) {}
  std::vector<UnitGroup> groups;  // disjoint, without the root and without containers; nested ones allowed
  UnitOptions root;               // options of the root unit
  std::vector<std::string> notes;
  std::vector<std::string> reasons;     // by ModuleId, for ModuleDecision
  bool ties_change_the_choice = false;  // tied parameters were counted at their common owner: worth a note
};

// Lists and dictionaries of modules: they have no forward, so no unit can start there.
bool is_container(const ModuleInfo& m);
// Modules that own each parameter, by ParameterId, ascending.
std::vector<std::vector<ModuleId>> owners_of(const ModuleTree& tree);
ModuleId lowest_common_owner(const ModuleTree& tree, const std::vector<ModuleId>& owners);

Selection select_blocks(const ModuleTree& tree, const WrapBlocks& policy, const UnitOptions& defaults);
Selection select_sublayers(const ModuleTree& tree, const UnitOptions& defaults);
Selection select_by_size(const ModuleTree& tree, const WrapSize& policy, const UnitOptions& defaults);
Selection select_by_class(const ModuleTree& tree, const WrapClass& policy, const UnitOptions& defaults);
Selection select_by_plan(const ModuleTree& tree, const WrapPlan& policy, const UnitOptions& defaults);

// A parameter belongs to the nearest enclosing unit; a tied one to the lowest unit that encloses all its owners.
UnitPlan assemble_plan(const ModuleTree& tree, Selection selection);

}  // namespace fsdp
