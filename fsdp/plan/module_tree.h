// ModuleTree: names, types, parameter shapes and sharing of a model. Knows no tensors. A value; cheap to copy for
// tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

using ModuleId = std::int32_t;     // index into ModuleTree::modules; 0 is the root of the model
using ParameterId = std::int32_t;  // index into ModuleTree::parameters

enum class InitRule : std::uint8_t {
  kUniform,
  kOnes,
  kZeros
};  // kUniform: the counter-based weights, tests/data/goldens

struct ParameterInfo {
  std::string name;                  // full path of the first owner, "model.embed_tokens.weight"
  std::vector<std::string> aliases;  // full paths of the further owners of a shared (tied) parameter
  std::vector<Count> shape;
  InitRule init = InitRule::kUniform;
  std::int32_t index = 0;  // position in the counter-based initialisation ("p"), unique
  bool trainable = true;
  Count numel() const;
};

struct ModuleInfo {
  std::string path;  // "" for the root, "model.layers.0.self_attn"
  std::string type;  // "LlamaDecoderLayer", "Linear", "ModuleList", ...
  ModuleId parent = -1;
  std::vector<ModuleId> children;       // in registration order
  std::vector<ParameterId> parameters;  // owned directly, in registration order; shared ones appear at every owner
  bool is_block = false;                // one of the model's repeated blocks: what `wrap: block` makes a unit
  bool is_sublayer_start = false;       // `wrap: sublayer`: a new unit starts with this child of a block, and takes the
                                   // following siblings up to the next start (norm + attention, norm + feed-forward)
  std::string no_unit;  // why no unit can start here ("its operators are not one range of the graph"); empty: one can
};

struct ModuleTree {
  std::vector<ModuleInfo> modules;  // pre-order: a parent before its children, children in registration order
  std::vector<ParameterInfo> parameters;

  // Adds a child; parent -1 makes the root. Returns its id. Call in pre-order: `parent` is the module added last, or
  // one of its ancestors.
  ModuleId add_module(ModuleId parent, const std::string& name, const std::string& type);
  ParameterId add_parameter(ModuleId owner, const std::string& name, std::vector<Count> shape, InitRule init);
  // A second owner of an existing parameter (tied weights).
  void share_parameter(ModuleId owner, const std::string& name, ParameterId existing);

  Count numel() const;                              // of all parameters, each shared one once
  Count subtree_numel(ModuleId m) const;            // deduplicated
  std::vector<ModuleId> subtree(ModuleId m) const;  // pre-order, m included
  ModuleId find(const std::string& path) const;     // -1 if absent
};

}  // namespace fsdp
