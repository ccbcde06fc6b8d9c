#include <algorithm>
#include <charconv>
#include <optional>

#include "fsdp/core/errors.h"
#include "fsdp/plan/selection.h"

namespace fsdp {
namespace {

std::string parent_path(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::optional<Count> list_index(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') + 1);  // npos + 1 == 0
  Count n = 0;
  const auto r = std::from_chars(last.data(), last.data() + last.size(), n);
  if (r.ec != std::errc{} || r.ptr != last.data() + last.size()) return std::nullopt;
  return n;
}

// "model.layers.3"; neighbours in a list "model.layers.[2-3]"; other siblings "model.layers.3.[input_layernorm+mlp]";
// the rest "[model.norm+lm_head]".
std::string unit_name(const ModuleTree& tree, const std::vector<ModuleId>& modules) {
  const std::string& first = tree.modules[modules.front()].path;
  if (modules.size() == 1) return first;
  const std::string parent = parent_path(first);
  bool siblings = true, run = list_index(first).has_value();
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::string& path = tree.modules[modules[i]].path;
    siblings = siblings && parent_path(path) == parent;
    run = run && list_index(path) == *list_index(first) + static_cast<Count>(i);
  }
  const auto skip = siblings && !parent.empty() ? parent.size() + 1 : 0;
  std::string inner;
  if (siblings && run) {
    inner = first.substr(skip);
    inner.append("-").append(tree.modules[modules.back()].path.substr(skip));
  } else {
    for (ModuleId m : modules) inner.append(inner.empty() ? "" : "+").append(tree.modules[m].path.substr(skip));
  }
  return first.substr(0, skip) + "[" + inner + "]";
}

// Assembles; unit indices here are those before empty units are dropped, 0 the root.
class Assembler {
 public:
  Assembler(const ModuleTree& tree, Selection selection)
      : tree_(tree), selection_(std::move(selection)), starts_(tree.modules.size(), kNoUnit) {
    plan_.notes = std::move(selection_.notes);
  }

  UnitPlan run() {
    make_units();
    check_starts();
    place_parameters();
    drop_empty();
    tell_ties();
    tell_partly_frozen();
    decide();
    return std::move(plan_);
  }

 private:
  void check_starts() const {
    for (const UnitSpec& u : units_) {
      for (const ModuleId m : u.modules) {
        const ModuleInfo& module = tree_.modules[static_cast<std::size_t>(m)];
        if (u.is_root || module.no_unit.empty()) continue;
        ModuleId parent = module.parent;
        while (parent > 0 && (is_container(tree_.modules[parent]) || !tree_.modules[parent].no_unit.empty()))
          parent = tree_.modules[parent].parent;
        throw ConfigError("[wrap] " + module.path + " (" + module.type + ") cannot be a unit: " + module.no_unit +
                          "; use " + (parent > 0 ? tree_.modules[parent].path : "the root") + ", which encloses it");
      }
    }
  }

  struct Tie {
    ParameterId parameter;
    std::vector<UnitId> owners;  // units of its owners, for the note
    UnitId unit;
  };

  void make_units() {
    std::sort(selection_.groups.begin(), selection_.groups.end(),
              [](const UnitGroup& a, const UnitGroup& b) { return a.modules.front() < b.modules.front(); });
    units_.push_back({.name = "root", .modules = {0}, .parameters = {}, .is_root = true, .options = selection_.root});
    for (UnitGroup& g : selection_.groups) {
      for (ModuleId m : g.modules) starts_[m] = static_cast<UnitId>(units_.size());
      UnitSpec u;
      u.name = unit_name(tree_, g.modules);
      u.modules = std::move(g.modules);
      u.options = g.options;
      units_.push_back(std::move(u));
    }
    starts_[0] = 0;
  }

  // Units around a module, the nearest first, the root last.
  std::vector<UnitId> enclosing(ModuleId m) const {
    std::vector<UnitId> units;
    for (; m >= 0; m = tree_.modules[m].parent) {
      if (starts_[m] != kNoUnit) units.push_back(starts_[m]);
    }
    return units;
  }

  void place_parameters() {
    const auto owners = owners_of(tree_);
    home_.assign(tree_.parameters.size(), 0);
    for (std::size_t p = 0; p < owners.size(); ++p) {
      std::vector<UnitId> common = enclosing(owners[p].front());
      Tie tie{static_cast<ParameterId>(p), {}, 0};
      for (ModuleId o : owners[p]) {
        const std::vector<UnitId> around = enclosing(o);
        tie.owners.push_back(around.front());
        std::erase_if(common, [&](UnitId u) { return std::find(around.begin(), around.end(), u) == around.end(); });
      }
      home_[p] = tie.unit = common.front();
      if (owners[p].size() > 1) ties_.push_back(std::move(tie));
    }
    std::vector<bool> placed(tree_.parameters.size(), false);
    for (const ModuleInfo& m : tree_.modules) {  // pre-order, the order of the flat layout
      for (ParameterId p : m.parameters) {
        if (placed[p]) continue;
        placed[p] = true;
        units_[home_[p]].parameters.push_back(p);
        units_[home_[p]].numel += tree_.parameters[p].numel();
      }
    }
  }

  void drop_empty() {
    kept_.assign(units_.size(), kNoUnit);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].parameters.empty()) continue;
      kept_[u] = static_cast<UnitId>(plan_.units.size());
      plan_.units.push_back(units_[u]);
    }
  }

  void tell_ties() {
    for (const Tie& tie : ties_) {
      const bool merged = std::any_of(tie.owners.begin(), tie.owners.end(), [&](UnitId u) { return u != tie.unit; });
      if (!merged && !selection_.ties_change_the_choice) continue;
      const ParameterInfo& p = tree_.parameters[tie.parameter];
      std::string note = p.name;
      for (const std::string& alias : p.aliases) note += " and " + alias;
      note += " are one tied parameter: it is kept once, in unit " + units_[tie.unit].name;
      for (UnitId u : tie.owners) {
        if (u != 0 && kept_[u] == kNoUnit)
          note += "; unit " + units_[u].name + " is left out, it would hold nothing else";
      }
      plan_.notes.push_back(std::move(note));
    }
  }

  // Flat, gradients are cut where the parameters are, so that a unit reduces all of itself or nothing (as FSDP1 with
  // original parameters).
  void tell_partly_frozen() {
    for (const UnitSpec& u : plan_.units) {
      Count frozen = 0;
      for (ParameterId p : u.parameters) frozen += tree_.parameters[p].trainable ? 0 : tree_.parameters[p].numel();
      if (u.options.layout != Layout::kFlat || frozen == 0 || frozen == u.numel) continue;
      plan_.notes.push_back("unit " + u.name +
                            " holds frozen and trainable parameters: in the flat layout its gradient " +
                            "is reduced whole, zeros for " + std::to_string(frozen) + " of " + std::to_string(u.numel) +
                            " elements; wrap them apart, or use layout per_parameter");
    }
  }

  void decide() {
    for (std::size_t m = 0; m < tree_.modules.size(); ++m) {
      ModuleDecision d;
      d.reason = std::move(selection_.reasons[m]);
      const UnitId start = starts_[m];
      d.starts_unit = start != kNoUnit && kept_[start] != kNoUnit;
      if (start > 0 && !d.starts_unit)
        d.reason += (d.reason.empty() ? "" : "; ") + std::string("left out: holds nothing");
      const auto& own = tree_.modules[m].parameters;
      if (!own.empty()) {
        d.unit = kept_[home_[own.front()]];
      } else {
        for (UnitId u : enclosing(static_cast<ModuleId>(m))) {
          if (d.unit == kNoUnit) d.unit = kept_[u];
        }
      }
      plan_.decisions.push_back(std::move(d));
    }
  }

  const ModuleTree& tree_;
  Selection selection_;
  std::vector<UnitId> starts_;  // by module: the unit that has it as a root
  std::vector<UnitSpec> units_;
  std::vector<UnitId> home_;  // by parameter
  std::vector<Tie> ties_;
  std::vector<UnitId> kept_;  // index here -> index in the plan
  UnitPlan plan_;
};

}  // namespace

std::vector<std::vector<ModuleId>> owners_of(const ModuleTree& tree) {
  std::vector<std::vector<ModuleId>> owners(tree.parameters.size());
  for (std::size_t m = 0; m < tree.modules.size(); ++m) {
    for (ParameterId p : tree.modules[m].parameters) owners[p].push_back(static_cast<ModuleId>(m));
  }
  return owners;
}

ModuleId lowest_common_owner(const ModuleTree& tree, const std::vector<ModuleId>& owners) {
  ModuleId a = owners.front();
  for (ModuleId b : owners) {
    while (a != b) (a > b ? a : b) = tree.modules[a > b ? a : b].parent;  // pre-order: a parent has the smaller id
  }
  return a;
}

UnitPlan assemble_plan(const ModuleTree& tree, Selection selection) {
  return Assembler(tree, std::move(selection)).run();
}

}  // namespace fsdp
