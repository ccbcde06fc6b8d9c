// What the readers of a .pt2 share: its JSON, with errors that name the file. Used by exported_*.cc alone.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/workload/exported_model.h"

namespace harness::exported {

using nlohmann::json;

[[noreturn]] void fail(const std::string& file, const std::string& what);
// A module as the graph knows it: one call of it, outermost first.
struct Frame {
  std::string key, path, type;
  bool operator==(const Frame& o) const { return key == o.key; }
};
using Frames = std::vector<Frame>;

struct ParameterEntry {
  std::string name, same_as;
  std::vector<std::int64_t> shape;
  bool trains = true;
};
struct ModuleEntry {
  std::string path, type;
};
// What the tree is made of, in the order of registration.
struct Registered {
  std::vector<ModuleEntry> modules;
  std::vector<ParameterEntry> parameters;
};

// Fills calls of `m` and the innermost module of each node; `frames` are those of each node. Then the tree.
// `parameter_ids`: by every name of a parameter.
void make_structure(ExportedModel& m, const Registered& registered, std::vector<Frames> frames,
                    std::map<std::string, fsdp::ParameterId>& parameter_ids);
// After states carry their parameters: inputs and outputs of calls, and why a module can be no unit.
void finish_structure(ExportedModel& m);

}  // namespace harness::exported
