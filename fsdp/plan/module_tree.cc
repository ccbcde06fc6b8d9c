#include "fsdp/plan/module_tree.h"

#include <algorithm>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

bool on_path_to_last(const ModuleTree& tree, ModuleId m) {
  for (ModuleId at = static_cast<ModuleId>(tree.modules.size()) - 1; at >= 0; at = tree.modules[at].parent) {
    if (at == m) return true;
  }
  return false;
}

}  // namespace

Count ParameterInfo::numel() const {
  Count n = 1;
  for (Count d : shape) n *= d;
  return n;
}

ModuleId ModuleTree::add_module(ModuleId parent, const std::string& name, const std::string& type) {
  const auto id = static_cast<ModuleId>(modules.size());
  SHARDSCOPE_CHECK((parent == -1) == modules.empty(), "module " + name + ": exactly the first one is the root");
  ModuleInfo m;
  m.type = type;
  m.parent = parent;
  if (parent >= 0) {
    SHARDSCOPE_CHECK(on_path_to_last(*this, parent), "module " + name + " is not added in pre-order");
    m.path = join(modules[parent].path, name);
    modules[parent].children.push_back(id);
  }
  modules.push_back(std::move(m));
  return id;
}

ParameterId ModuleTree::add_parameter(ModuleId owner, const std::string& name, std::vector<Count> shape,
                                      InitRule init) {
  const auto id = static_cast<ParameterId>(parameters.size());
  ParameterInfo p;
  p.name = join(modules.at(owner).path, name);
  p.shape = std::move(shape);
  p.init = init;
  p.index = id;
  parameters.push_back(std::move(p));
  modules[owner].parameters.push_back(id);
  return id;
}

void ModuleTree::share_parameter(ModuleId owner, const std::string& name, ParameterId existing) {
  parameters.at(existing).aliases.push_back(join(modules.at(owner).path, name));
  modules[owner].parameters.push_back(existing);
}

Count ModuleTree::numel() const {
  Count n = 0;
  for (const ParameterInfo& p : parameters) n += p.numel();
  return n;
}

Count ModuleTree::subtree_numel(ModuleId m) const {
  std::vector<ParameterId> ids;
  for (ModuleId s : subtree(m)) ids.insert(ids.end(), modules[s].parameters.begin(), modules[s].parameters.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Count n = 0;
  for (ParameterId p : ids) n += parameters[p].numel();
  return n;
}

std::vector<ModuleId> ModuleTree::subtree(ModuleId m) const {
  // Pre-order makes a subtree one run of ids: it ends before the next module whose parent lies before m.
  std::vector<ModuleId> ids{m};
  for (auto s = static_cast<std::size_t>(m) + 1; s < modules.size() && modules[s].parent >= m; ++s) {
    ids.push_back(static_cast<ModuleId>(s));
  }
  return ids;
}

ModuleId ModuleTree::find(const std::string& path) const {
  for (std::size_t m = 0; m < modules.size(); ++m) {
    if (modules[m].path == path) return static_cast<ModuleId>(m);
  }
  return -1;
}

}  // namespace fsdp
