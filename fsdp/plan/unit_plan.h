// UnitPlan: which parameters travel together, and how. The result of a wrap policy; pure data.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/module_tree.h"

namespace fsdp {

enum class Layout : std::uint8_t { kFlat, kPerParameter };  // see shard_layout.h

// How one unit is kept. Defaults come from the case's settings; a plan file may override them unit by unit.
struct UnitOptions {
  Strategy strategy = Strategy::kFullShard;
  int group = 0;  // hybrid: ranks per shard group; else unused
  // Absent: by strategy (full_shard frees after forward, the root is kept). `true` frees the root too.
  std::optional<bool> reshard_after_forward;
  int reshard_group = 0;  // > 1: after forward keep a copy sharded over this many ranks
  Dtype param_dtype = Dtype::kFloat32;
  Dtype reduce_dtype = Dtype::kFloat32;
  std::optional<Dtype> output_dtype;  // what floating outputs are cast to when they leave the unit; absent: as they are
  Layout layout = Layout::kFlat;      // of the whole plan; a plan file does not set it
};

struct UnitSpec {
  std::string name;                     // "root", "model.layers.3", "model.layers.[2-3]"
  std::vector<ModuleId> modules;        // roots of the unit in execution order: pre-forward at the first, post-forward
                                        // after the last (FSDP2's list form)
  std::vector<ParameterId> parameters;  // in order of the flat layout: pre-order walk of the unit's modules
  bool is_root = false;
  UnitOptions options;
  Count numel = 0;
};

struct ModuleDecision {
  UnitId unit = kNoUnit;  // holds the module's own parameters; for a module without any, what encloses it (or kNoUnit)
  bool starts_unit = false;
  std::string reason;  // why it is, or is not, a unit: "remainder 50 is below 100"; empty where the policy did not look
};

struct UnitPlan {
  std::vector<UnitSpec> units;     // the root first if it owns parameters, then in pre-order; no unit is empty
  std::vector<std::string> notes;  // sentences for the user: merged tied weights, unmatched classes, one unit holds all
  std::vector<ModuleDecision> decisions;  // one for each module of the tree, by ModuleId
};

// Whether the unit's full parameters are given back after forward.
bool reshards_after_forward(const UnitSpec& unit);

}  // namespace fsdp
