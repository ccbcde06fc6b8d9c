#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "harness/workload/describe.h"
#include "harness/workload/exported_model.h"

namespace harness {

using fsdp::ConfigError;
using fsdp::Count;
using fsdp::InitRule;
using fsdp::ModuleId;
using fsdp::ModuleTree;

const std::vector<Family>& families() {
  static const std::vector<std::string> llama = {"layers", "dim",  "heads",    "kv_heads",   "head_dim", "ffn",
                                                 "vocab",  "tied", "norm_eps", "rope_theta", "frozen"};
  static const std::vector<Family> table = {
      {"llama", describe_llama, llama},
      {"mistral", describe_llama, llama},
      {"qwen2", describe_llama, llama},
      {"qwen3", describe_llama, llama},
      {"gpt-neox",
       describe_gpt_neox,
       {"layers", "dim", "heads", "kv_heads", "ffn", "vocab", "tied", "norm_eps", "rope_theta", "rotary_pct",
        "parallel_residual", "frozen"},
       true},
      {"gpt2",
       describe_gpt2,
       {"layers", "dim", "heads", "kv_heads", "ffn", "vocab", "positions", "tied", "norm_eps", "frozen"},
       true},
      {"t5",
       describe_t5,
       {"layers", "decoder_layers", "dim", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied", "gated", "norm_eps",
        "relative_buckets", "relative_span", "frozen"}},
      {"embedding-classifier",
       describe_classifier,
       {"layers", "dim", "heads", "kv_heads", "ffn", "vocab", "classes", "norm_eps", "frozen"},
       true},
      {"mlp", describe_mlp, {"layers", "dim", "ffn", "classes", "frozen"}, true},
  };
  return table;
}

const Family& family_of(const std::string& name) {
  // What torch.export wrote has no dimensions to choose, so it is none of the families that are listed.
  static const Family graph = {"graph", describe_graph, {"frozen"}};
  if (name == graph.name) return graph;
  std::string names;
  for (const Family& f : families()) {
    if (name == f.name) return f;
    names += (names.empty() ? "" : ", ") + std::string(f.name);
  }
  throw ConfigError("[model] there is no model family '" + name + "'; families: " + names);
}

ModuleId add_linear(ModuleTree& tree, ModuleId parent, const std::string& name, Count in, Count out, bool bias) {
  const ModuleId id = tree.add_module(parent, name, "Linear");
  tree.add_parameter(id, "weight", {out, in}, InitRule::kUniform);
  if (bias) tree.add_parameter(id, "bias", {out}, InitRule::kZeros);
  return id;
}

ModuleId add_conv1d(ModuleTree& tree, ModuleId parent, const std::string& name, Count in, Count out) {
  const ModuleId id = tree.add_module(parent, name, "Conv1D");
  tree.add_parameter(id, "weight", {in, out}, InitRule::kUniform);
  tree.add_parameter(id, "bias", {out}, InitRule::kZeros);
  return id;
}

ModuleId add_embedding(ModuleTree& tree, ModuleId parent, const std::string& name, Count rows, Count dim) {
  const ModuleId id = tree.add_module(parent, name, "Embedding");
  tree.add_parameter(id, "weight", {rows, dim}, InitRule::kUniform);
  return id;
}

ModuleId add_tied(ModuleTree& tree, ModuleId parent, const std::string& name, const std::string& type, ModuleId owner) {
  const ModuleId id = tree.add_module(parent, name, type);
  tree.share_parameter(id, "weight", tree.modules[owner].parameters.front());
  return id;
}

ModuleId add_norm(ModuleTree& tree, ModuleId parent, const std::string& name, const std::string& type, Count dim,
                  bool bias) {
  const ModuleId id = tree.add_module(parent, name, type);
  tree.add_parameter(id, "weight", {dim}, InitRule::kOnes);
  if (bias) tree.add_parameter(id, "bias", {dim}, InitRule::kZeros);
  return id;
}

ModuleId add_block_module(ModuleTree& tree, ModuleId list, std::int64_t number, const std::string& type) {
  const ModuleId id = tree.add_module(list, std::to_string(number), type);
  tree.modules[id].is_block = true;
  return id;
}

ModuleTree describe_causal(const CausalNames& names, const ModelSettings& m, AddBlock add_block) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", names.type);
  const ModuleId model = tree.add_module(root, names.model, names.model_type);
  const ModuleId table = add_embedding(tree, model, names.table, m.vocab, m.dim);
  if (!names.positions.empty()) add_embedding(tree, model, names.positions, m.positions, m.dim);
  const ModuleId blocks = tree.add_module(model, names.blocks, "ModuleList");
  for (std::int64_t l = 0; l < m.layers; ++l) add_block(tree, blocks, l, m);
  add_norm(tree, model, names.norm, names.norm_type, m.dim, names.norm_type == "LayerNorm");
  if (m.tied)
    add_tied(tree, root, names.head, "Linear", table);
  else
    add_linear(tree, root, names.head, m.dim, m.vocab, false);
  return tree;
}

namespace {

// '*' stands for any characters.
bool matches(const std::string& pattern, const std::string& name, std::size_t p = 0, std::size_t n = 0) {
  for (; p < pattern.size(); ++p, ++n) {
    if (pattern[p] == '*') {
      for (std::size_t rest = n; rest <= name.size(); ++rest)
        if (matches(pattern, name, p + 1, rest)) return true;
      return false;
    }
    if (n == name.size() || pattern[p] != name[n]) return false;
  }
  return n == name.size();
}

// A tied parameter is frozen by any of its names.
bool freeze(ModuleTree& tree, const std::string& pattern) {
  bool found = false;
  for (fsdp::ParameterInfo& p : tree.parameters) {
    const bool hit = matches(pattern, p.name) || std::any_of(p.aliases.begin(), p.aliases.end(),
                                                             [&](const auto& a) { return matches(pattern, a); });
    if (hit) p.trainable = false;
    found |= hit;
  }
  return found;
}

void freeze_all(ModuleTree& tree, const std::string& patterns) {
  for (std::size_t from = 0; from < patterns.size();) {
    const std::size_t end = std::min(patterns.find('+', from), patterns.size());
    const std::string pattern = patterns.substr(from, end - from);
    from = end + 1;
    if (freeze(tree, pattern)) continue;
    std::vector<std::string> names;
    for (const fsdp::ParameterInfo& p : tree.parameters) names.push_back(p.name);
    throw ConfigError("[set] frozen=" + pattern + " is no parameter of this model; nearest: " +
                      fsdp::nearest_names(pattern, names) + "; '*' stands for any characters");
  }
  const auto trains = [](const fsdp::ParameterInfo& p) { return p.trainable; };
  if (!patterns.empty() && std::none_of(tree.parameters.begin(), tree.parameters.end(), trains))
    throw ConfigError("[set] frozen=" + patterns + " leaves no parameter to train; freeze fewer");
}

}  // namespace

ModuleTree describe_graph(const ModelSettings& m) { return exported_model(m.file, m.fingerprint)->tree; }

ModuleTree describe_model(const ModelSettings& m) {
  ModuleTree tree = family_of(m.family).describe(m);
  freeze_all(tree, m.frozen);
  return tree;
}

}  // namespace harness
