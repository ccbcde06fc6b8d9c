// Operators and their module paths -> calls of modules, and the tree of modules that policies see.
#include <algorithm>
#include <limits>
#include <set>

#include "fsdp/core/errors.h"
#include "harness/workload/exported_json.h"

namespace harness::exported {
namespace {

using fsdp::ModuleId;
using fsdp::ModuleInfo;
using fsdp::ModuleTree;
using fsdp::ParameterId;

constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

// Keys of calls that stop and go on later: their operators count as the enclosing module's.
std::map<std::string, std::string> split_calls(const std::vector<Frames>& frames) {
  std::map<std::string, std::string> split;  // key -> path
  std::set<std::string> seen;
  const Frames none;
  for (std::size_t n = 0; n < frames.size(); ++n) {
    const Frames& before = n == 0 ? none : frames[n - 1];
    for (const Frame& f : frames[n]) {
      const bool open = std::find(before.begin(), before.end(), f) != before.end();
      if (!open && !seen.insert(f.key).second) split.emplace(f.key, f.path);
    }
  }
  return split;
}

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}
std::string parent_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}
std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }  // npos + 1 == 0

// One module while the tree is made.
struct Draft {
  std::string path, type;
  std::vector<std::size_t> children, parameters;
  std::int32_t first = kNever;  // operator
};

class TreeMaker {
 public:
  TreeMaker(ExportedModel& m, const Registered& r, std::map<std::string, ParameterId>& ids)
      : m_(m), registered_(r), ids_(ids) {}

  // `first`: by path, the first operator of each module.
  std::map<std::string, ModuleId> run(const std::map<std::string, std::int32_t>& first) {
    for (const ModuleEntry& e : registered_.modules) draft_of(e.path).type = e.type;
    for (std::size_t p = 0; p < registered_.parameters.size(); ++p) {
      draft_of(parent_of(registered_.parameters[p].name));
      drafts_[places_.at(parent_of(registered_.parameters[p].name))].parameters.push_back(p);
    }
    for (const auto& [path, at] : first) draft_of(path).first = at;
    settle(0);
    add(0, -1);
    mark_blocks(0);
    return modules_;
  }

 private:
  Draft& draft_of(const std::string& path) {
    const auto found = places_.find(path);
    if (found != places_.end()) return drafts_[found->second];
    std::size_t parent = 0;
    if (!path.empty()) {
      draft_of(parent_of(path));
      parent = places_.at(parent_of(path));
    }
    places_[path] = drafts_.size();
    drafts_.push_back({path, "", {}, {}, kNever});
    if (!path.empty()) drafts_[parent].children.push_back(drafts_.size() - 1);
    return drafts_.back();
  }

  // Children in order of execution; a container that nobody named is a list.
  std::int32_t settle(std::size_t d) {
    std::int32_t first = drafts_[d].first;
    bool numbered = !drafts_[d].children.empty();
    for (const std::size_t c : drafts_[d].children) {
      first = std::min(first, settle(c));
      numbered = numbered && is_number(leaf_of(drafts_[c].path));
    }
    Draft& draft = drafts_[d];
    draft.first = first;
    if (draft.type.empty()) draft.type = numbered ? "ModuleList" : "Module";
    std::stable_sort(draft.children.begin(), draft.children.end(),
                     [&](std::size_t a, std::size_t b) { return drafts_[a].first < drafts_[b].first; });
    return first;
  }

  void add(std::size_t d, ModuleId parent) {
    const Draft draft = drafts_[d];
    const ModuleId id = m_.tree.add_module(parent, leaf_of(draft.path), draft.type);
    modules_[draft.path] = id;
    for (const std::size_t p : draft.parameters) add_parameter(id, registered_.parameters[p]);
    for (const std::size_t c : draft.children) add(c, id);
  }

  void add_parameter(ModuleId id, const ParameterEntry& p) {
    const std::string leaf = leaf_of(p.name), owner = p.same_as.empty() ? p.name : p.same_as;
    if (const auto found = owners_.find(owner); found != owners_.end()) {
      m_.tree.share_parameter(id, leaf, found->second);
      ids_[p.name] = found->second;
      return;
    }
    const bool weight = leaf.ends_with("weight");
    const fsdp::InitRule rule = p.shape.size() > 1 ? fsdp::InitRule::kUniform
                                : weight           ? fsdp::InitRule::kOnes
                                                   : fsdp::InitRule::kZeros;
    const ParameterId made = m_.tree.add_parameter(id, leaf, p.shape, rule);
    m_.tree.parameters[static_cast<std::size_t>(made)].trainable = p.trains;
    owners_[owner] = ids_[p.name] = made;
  }

  // Blocks: what stands several times, by class, in lists; the outermost of them. Where such classes are both single
  // layers and modules with modules inside, only the latter.
  void mark_blocks(ModuleId root) {
    std::vector<ModuleId> found;
    std::map<std::string, int> count;
    bool composite = false;
    collect(root, found);
    for (const ModuleId c : found) ++count[info(c).type];
    const auto repeated = [&](ModuleId c) { return count[info(c).type] > 1; };
    for (const ModuleId c : found) composite |= repeated(c) && !info(c).children.empty();
    for (const ModuleId c : found) {
      if (!repeated(c) || (composite && info(c).children.empty())) continue;
      info(c).is_block = true;
      mark_sublayers(c);
    }
  }
  void collect(ModuleId id, std::vector<ModuleId>& found) {
    const bool list = info(id).type == "ModuleList" || info(id).type == "ModuleDict" || info(id).type == "Sequential";
    for (const ModuleId c : info(id).children) {
      const bool inner_list = info(c).type == "ModuleList" || info(c).type == "Sequential";
      if (m_.tree.subtree_numel(c) == 0) continue;
      if (list && !inner_list)
        found.push_back(c);
      else
        collect(c, found);
    }
  }
  // A sublayer ends with a module that has modules inside: a norm and the attention after it.
  void mark_sublayers(ModuleId block) {
    std::vector<ModuleId> parts;
    for (const ModuleId c : info(block).children) {
      const std::vector<ModuleId>& inner = info(c).children;
      if (info(c).type == "ModuleList")
        parts.insert(parts.end(), inner.begin(), inner.end());
      else
        parts.push_back(c);
    }
    bool starts = true;
    const auto composite = [&](ModuleId c) { return !info(c).children.empty() && m_.tree.subtree_numel(c) > 0; };
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool more = std::any_of(parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end(), composite);
      if (starts && more) info(parts[i]).is_sublayer_start = true;
      starts = composite(parts[i]);
    }
  }
  ModuleInfo& info(ModuleId id) { return m_.tree.modules[static_cast<std::size_t>(id)]; }

  ExportedModel& m_;
  const Registered& registered_;
  std::map<std::string, ParameterId>& ids_;
  std::map<std::string, ParameterId> owners_;
  std::vector<Draft> drafts_;
  std::map<std::string, std::size_t> places_;
  std::map<std::string, ModuleId> modules_;
};

// Frames of each node -> nested ranges.
class CallMaker {
 public:
  CallMaker(ExportedModel& m, const std::map<std::string, ModuleId>& modules) : m_(m), modules_(modules) {}
  void run(const std::vector<Frames>& frames) {
    m_.calls.push_back({0, 0, static_cast<std::int32_t>(frames.size()), {}, {}, {}});
    for (std::size_t n = 0; n < frames.size(); ++n) {
      const auto at = static_cast<std::int32_t>(n);
      std::size_t same = 0;
      while (same < open_.size() && same < frames[n].size() && open_[same].first == frames[n][same].key) ++same;
      while (open_.size() > same) close(at);
      for (std::size_t f = same; f < frames[n].size(); ++f) open(frames[n][f], at);
      m_.nodes[n].module = m_.calls[static_cast<std::size_t>(open_.empty() ? 0 : open_.back().second)].module;
    }
    while (!open_.empty()) close(static_cast<std::int32_t>(frames.size()));
  }

 private:
  void open(const Frame& f, std::int32_t at) {
    const auto call = static_cast<std::int32_t>(m_.calls.size());
    const std::int32_t around = open_.empty() ? 0 : open_.back().second;
    m_.calls.push_back({modules_.at(f.path), at, at, {}, {}, {}});
    m_.calls[static_cast<std::size_t>(around)].inside.push_back(call);
    open_.emplace_back(f.key, call);
  }
  void close(std::int32_t at) {
    m_.calls[static_cast<std::size_t>(open_.back().second)].end = at;
    open_.pop_back();
  }
  ExportedModel& m_;
  const std::map<std::string, ModuleId>& modules_;
  std::vector<std::pair<std::string, std::int32_t>> open_;
};

std::map<std::string, std::int32_t> first_operators(const std::vector<Frames>& frames) {
  std::map<std::string, std::int32_t> first;
  for (std::size_t n = 0; n < frames.size(); ++n)
    for (const Frame& f : frames[n]) first.try_emplace(f.path, static_cast<std::int32_t>(n));
  return first;
}

}  // namespace

void make_structure(ExportedModel& m, const Registered& registered, std::vector<Frames> frames,
                    std::map<std::string, ParameterId>& parameter_ids) {
  for (Frames& f : frames)  // the root is no frame: its call is all of the graph
    std::erase_if(f, [](const Frame& frame) { return frame.path.empty(); });
  const auto first = first_operators(frames);
  const std::map<std::string, std::string> split = split_calls(frames);
  for (Frames& f : frames) std::erase_if(f, [&](const Frame& frame) { return split.count(frame.key) != 0; });
  const auto modules = TreeMaker(m, registered, parameter_ids).run(first);
  for (const auto& [key, path] : split)
    m.tree.modules[static_cast<std::size_t>(modules.at(path))].no_unit = "its operators are not one range of the graph";
  CallMaker(m, modules).run(frames);
}

namespace {

// Where each value is made (-1: before the first operator) and who reads it.
struct Uses {
  std::vector<std::int32_t> made, last;
  std::vector<std::vector<std::int32_t>> readers;
};

Uses uses_of(const ExportedModel& m) {
  Uses u;
  u.made.assign(static_cast<std::size_t>(m.slots), -1);
  u.last.assign(static_cast<std::size_t>(m.slots), -1);
  u.readers.resize(static_cast<std::size_t>(m.slots));
  for (std::size_t n = 0; n < m.nodes.size(); ++n) {
    const auto at = static_cast<std::int32_t>(n);
    for (const GraphArgument& a : m.nodes[n].arguments) {
      for (const Slot s : a.slots) {
        if (s == kNoSlot) continue;
        u.last[static_cast<std::size_t>(s)] = at;
        u.readers[static_cast<std::size_t>(s)].push_back(at);
      }
    }
    for (const Slot s : m.nodes[n].outputs)
      if (s != kNoSlot) u.made[static_cast<std::size_t>(s)] = at;
  }
  const auto end = static_cast<std::int32_t>(m.nodes.size());
  u.last[static_cast<std::size_t>(m.loss)] = end;
  for (const auto& [slot, state] : m.updates) u.last[static_cast<std::size_t>(slot)] = end;
  return u;
}

void bound_calls(ExportedModel& m, const Uses& u) {
  std::vector<bool> is_state(static_cast<std::size_t>(m.slots));
  for (const GraphState& s : m.states) is_state[static_cast<std::size_t>(s.slot)] = true;
  std::vector<std::int32_t> noted(static_cast<std::size_t>(m.slots), -1);
  for (std::size_t c = 0; c < m.calls.size(); ++c) {
    GraphCall& call = m.calls[c];
    for (std::int32_t n = call.begin; n < call.end; ++n) {
      const GraphNode& node = m.nodes[static_cast<std::size_t>(n)];
      for (const GraphArgument& a : node.arguments) {
        for (const Slot s : a.slots) {
          const auto i = static_cast<std::size_t>(s);
          if (s == kNoSlot || is_state[i] || u.made[i] >= call.begin || noted[i] == static_cast<std::int32_t>(c))
            continue;
          noted[i] = static_cast<std::int32_t>(c);
          call.inputs.push_back(s);
        }
      }
      for (const Slot s : node.outputs)
        if (s != kNoSlot && u.last[static_cast<std::size_t>(s)] >= call.end) call.outputs.push_back(s);
    }
  }
}

class UnitChecker {
 public:
  UnitChecker(ExportedModel& m, const Uses& u) : m_(m), u_(u), calls_(m.tree.modules.size()) {
    for (const GraphCall& c : m.calls) calls_[static_cast<std::size_t>(c.module)].emplace_back(c.begin, c.end);
  }
  // A unit that starts at a module holds a parameter while the module runs: whoever reads it must run inside.
  void run() {
    std::vector<std::vector<std::int32_t>> readers(m_.tree.parameters.size());
    for (const GraphState& s : m_.states) {
      if (s.parameter < 0) continue;
      auto& to = readers[static_cast<std::size_t>(s.parameter)];
      const auto& from = u_.readers[static_cast<std::size_t>(s.slot)];
      to.insert(to.end(), from.begin(), from.end());
    }
    std::vector<std::vector<ModuleId>> owners(m_.tree.parameters.size());
    for (std::size_t i = 0; i < m_.tree.modules.size(); ++i)
      for (const ParameterId p : m_.tree.modules[i].parameters)
        owners[static_cast<std::size_t>(p)].push_back(static_cast<ModuleId>(i));
    for (std::size_t p = 0; p < readers.size(); ++p)
      for (ModuleId at = common(owners[p]); at > 0; at = m_.tree.modules[static_cast<std::size_t>(at)].parent)
        check(at, m_.tree.parameters[p].name, readers[p]);
  }

 private:
  ModuleId common(std::vector<ModuleId> owners) const {
    // Ids are in pre-order: going up from the largest until all are one.
    while (owners.size() > 1) {
      std::sort(owners.begin(), owners.end());
      owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
      if (owners.size() > 1) owners.back() = m_.tree.modules[static_cast<std::size_t>(owners.back())].parent;
    }
    return owners.empty() ? 0 : owners.front();
  }
  void check(ModuleId id, const std::string& parameter, const std::vector<std::int32_t>& readers) {
    ModuleInfo& module = m_.tree.modules[static_cast<std::size_t>(id)];
    if (!module.no_unit.empty()) return;
    const auto& calls = calls_[static_cast<std::size_t>(id)];
    for (const std::int32_t n : readers) {
      const bool inside =
          std::any_of(calls.begin(), calls.end(), [&](const auto& c) { return c.first <= n && n < c.second; });
      if (inside) continue;
      const std::string& reader =
          m_.tree.modules[static_cast<std::size_t>(m_.nodes[static_cast<std::size_t>(n)].module)].path;
      module.no_unit = (calls.empty() ? "it is never called, and " : "") + parameter + " is read outside of it, in " +
                       (reader.empty() ? "the model's own forward" : reader);
      return;
    }
  }
  ExportedModel& m_;
  const Uses& u_;
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> calls_;
};

}  // namespace

void finish_structure(ExportedModel& m) {
  const Uses uses = uses_of(m);
  bound_calls(m, uses);
  UnitChecker(m, uses).run();
}

}  // namespace harness::exported
