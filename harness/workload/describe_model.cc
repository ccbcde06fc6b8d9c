#include "fsdp/core/errors.h"
#include "harness/workload/describe.h"

namespace harness {

using fsdp::Count;
using fsdp::InitRule;
using fsdp::ModuleId;
using fsdp::ModuleTree;

ModuleId add_linear(ModuleTree& tree, ModuleId parent, const std::string& name, Count in, Count out, bool bias) {
  const ModuleId id = tree.add_module(parent, name, "Linear");
  tree.add_parameter(id, "weight", {out, in}, InitRule::kUniform);
  if (bias) tree.add_parameter(id, "bias", {out}, InitRule::kZeros);
  return id;
}

ModuleId add_embedding(ModuleTree& tree, ModuleId parent, const std::string& name, Count rows, Count dim) {
  const ModuleId id = tree.add_module(parent, name, "Embedding");
  tree.add_parameter(id, "weight", {rows, dim}, InitRule::kUniform);
  return id;
}

ModuleId add_norm(ModuleTree& tree, ModuleId parent, const std::string& name, const std::string& type, Count dim,
                  bool bias) {
  const ModuleId id = tree.add_module(parent, name, type);
  tree.add_parameter(id, "weight", {dim}, InitRule::kOnes);
  if (bias) tree.add_parameter(id, "bias", {dim}, InitRule::kZeros);
  return id;
}

ModuleTree describe_model(const ModelSettings& m) {
  if (m.family == "llama") return describe_llama(m);
  if (m.family == "gpt-neox") return describe_gpt_neox(m);
  throw fsdp::ConfigError("[model] there is no model family '" + m.family + "'; families: llama, gpt-neox");
}

}  // namespace harness
