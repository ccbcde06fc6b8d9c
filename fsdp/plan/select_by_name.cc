// Policies that name modules: class lists and plan files.
#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/selection.h"

namespace fsdp {
namespace {

bool has_wildcard(const std::string& pattern) { return pattern.find('*') != std::string::npos; }

std::vector<std::string> paths_of(const ModuleTree& tree) {
  std::vector<std::string> paths;
  for (const ModuleInfo& m : tree.modules) paths.push_back(m.path);
  return paths;
}

// What a name could have meant: a path if it looks like one, else a type.
std::vector<std::string> candidates_for(const ModuleTree& tree, const std::string& name) {
  if (name.find_first_of(".*") != std::string::npos) return paths_of(tree);
  std::vector<std::string> names;
  for (const ModuleInfo& m : tree.modules) {
    if (!is_container(m)) names.push_back(m.type);
  }
  for (ModuleId child : tree.modules[0].children) names.push_back(tree.modules[child].path);
  return names;
}

std::string place_of(const WrapPlan& plan, const PlanLine& line) {
  std::string place = "[";
  place.append(plan.file.empty() ? "plan" : plan.file);
  if (line.line > 0) place.append(":").append(std::to_string(line.line));
  return place.append("] ");
}

[[noreturn]] void refuse_container(const std::string& where, const ModuleInfo& m) {
  throw ConfigError(where + (m.path.empty() ? m.type : m.path) + " is a " + m.type +
                    " and has no forward of its own, so it cannot be a unit; name its children, " + m.path + ".*");
}

// Modules below the root that the pattern names. Containers under a wildcard are passed over.
std::vector<ModuleId> match_paths(const ModuleTree& tree, const std::string& pattern, const std::string& where) {
  std::vector<ModuleId> found;
  for (std::size_t m = 1; m < tree.modules.size(); ++m) {
    const ModuleInfo& info = tree.modules[m];
    if (!path_matches(pattern, info.path)) continue;
    if (!is_container(info)) {
      found.push_back(static_cast<ModuleId>(m));
    } else if (!has_wildcard(pattern)) {
      refuse_container(where, info);
    }
  }
  return found;
}

// The root's own type counts as found but makes no unit: the root always is one.
bool select_class(const ModuleTree& tree, const std::string& name, Selection& s, std::vector<bool>& chosen) {
  bool found = tree.modules[0].type == name;
  for (ModuleId m : match_paths(tree, name, "[wrap] ")) {
    found = chosen[m] = true;
    s.reasons[m] = "its path is named";
  }
  for (std::size_t m = 1; m < tree.modules.size(); ++m) {
    if (tree.modules[m].type != name) continue;
    if (is_container(tree.modules[m])) refuse_container("[wrap] ", tree.modules[m]);
    found = chosen[m] = true;
    s.reasons[m] = "type " + name + " is named";
  }
  return found;
}

std::vector<ModuleId> match_line(const ModuleTree& tree, const WrapPlan& plan, const PlanLine& line) {
  std::vector<ModuleId> modules;
  for (const std::string& pattern : line.match) {
    const std::string where = place_of(plan, line);
    const std::vector<ModuleId> found = match_paths(tree, pattern, where);
    if (found.empty()) {
      throw ConfigError(where + "match '" + pattern +
                        "' names no module; nearest: " + nearest_names(pattern, paths_of(tree)));
    }
    modules.insert(modules.end(), found.begin(), found.end());
  }
  std::sort(modules.begin(), modules.end());
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

// Keeps those without an ancestor among them: in a list only the roots of the list count.
std::vector<ModuleId> tops(const ModuleTree& tree, const std::vector<ModuleId>& modules) {
  std::vector<ModuleId> kept;
  for (ModuleId m : modules) {
    bool inside = false;
    for (ModuleId a = tree.modules[m].parent; a >= 0 && !inside; a = tree.modules[a].parent) {
      inside = std::binary_search(modules.begin(), modules.end(), a);
    }
    if (!inside) kept.push_back(m);
  }
  return kept;
}

// Which line decides each module, -1 for none; notes where lines overlap.
std::vector<int> assign_lines(const ModuleTree& tree, const WrapPlan& plan, Selection& s) {
  const UnitOptions defaults = s.root;
  std::vector<int> line_of(tree.modules.size(), -1);
  for (std::size_t i = 0; i < plan.lines.size(); ++i) {
    const PlanLine& line = plan.lines[i];
    if (!line.together && line.match == std::vector<std::string>{"root"} && tree.find("root") < 0) {
      s.root = options_of(line, defaults);
      s.reasons[0] = "root is named";
      continue;
    }
    int taken = 0;
    std::string example;
    for (ModuleId m : match_line(tree, plan, line)) {
      if (line_of[m] >= 0 && taken++ == 0) example = tree.modules[m].path;
      line_of[m] = static_cast<int>(i);
    }
    if (taken > 0) {
      s.notes.push_back(place_of(plan, line) + example +
                        (taken > 1 ? " and " + std::to_string(taken - 1) + " more" : "") +
                        (taken > 1 ? " were" : " was") + " named by an earlier entry too; this entry decides");
    }
  }
  return line_of;
}

}  // namespace

Selection select_by_class(const ModuleTree& tree, const WrapClass& policy, const UnitOptions& defaults) {
  Selection s(tree, defaults);
  std::vector<bool> chosen(tree.modules.size(), false);
  std::vector<std::string> absent;
  for (const std::string& name : policy.names) {
    if (!select_class(tree, name, s, chosen)) absent.push_back(name);
  }
  if (absent.size() == policy.names.size()) {
    std::string names, nearest;
    for (const std::string& name : absent) {
      names += (names.empty() ? "'" : " or '") + name + "'";
      nearest +=
          (nearest.empty() ? "" : ", ") + nearest_names(name, candidates_for(tree, name), absent.size() > 1 ? 1 : 3);
    }
    throw ConfigError("[wrap] no module has the type or path " + names + "; nearest: " + nearest);
  }
  for (const std::string& name : absent) {
    s.notes.push_back("no module has the type or path '" + name + "' (nearest: " +
                      nearest_names(name, candidates_for(tree, name), 1) + "); the other names are used");
  }
  for (std::size_t m = 1; m < tree.modules.size(); ++m) {
    if (chosen[m]) s.groups.push_back({{static_cast<ModuleId>(m)}, defaults});
  }
  return s;
}

Selection select_by_plan(const ModuleTree& tree, const WrapPlan& policy, const UnitOptions& defaults) {
  Selection s(tree, defaults);
  const std::vector<int> line_of = assign_lines(tree, policy, s);
  for (std::size_t i = 0; i < policy.lines.size(); ++i) {
    const PlanLine& line = policy.lines[i];
    std::vector<ModuleId> modules;
    for (std::size_t m = 1; m < line_of.size(); ++m) {
      if (line_of[m] != static_cast<int>(i)) continue;
      s.reasons[m] = line.line > 0 ? "named in line " + std::to_string(line.line) : "named in the plan";
      modules.push_back(static_cast<ModuleId>(m));
    }
    if (modules.empty()) continue;
    if (line.together) {
      s.groups.push_back({tops(tree, modules), options_of(line, defaults)});
      continue;
    }
    for (ModuleId m : modules) s.groups.push_back({{m}, options_of(line, defaults)});
  }
  return s;
}

}  // namespace fsdp
