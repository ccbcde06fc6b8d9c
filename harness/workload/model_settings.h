// ModelSettings: the dimensions of a model of one of the families. Plain C++; the torch models and the torch-free
// ModuleTree builders are both made from it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/module_tree.h"

namespace harness {

struct ModelSettings {
  std::string family = "llama";  // "llama", "gpt-neox", later "gpt2", "t5", "embedding-classifier", "mlp"
  std::int64_t layers = 4, dim = 128, heads = 4, kv_heads = 4, ffn = 352, vocab = 512;
  std::int64_t seq = 64;  // default sequence length
  bool tied = false;
  double norm_eps = 1e-5, rope_theta = 10000.0;
  double rotary_pct = 0.25;       // gpt-neox
  bool parallel_residual = true;  // gpt-neox
};

// Preset names, for --help and for "nearest names" in errors.
std::vector<std::string> model_presets();
// `model` setting + `set` overrides ("layers=8,dim=512") -> settings. Throws fsdp::ConfigError naming the key and what
// is allowed (unknown key, not an integer, dim not divisible by heads, heads not by kv_heads, non-positive, ...).
ModelSettings resolve_model(const std::string& model, const std::string& overrides);

// The model's modules and parameters, names as in Hugging Face, without torch.
fsdp::ModuleTree describe_model(const ModelSettings& m);

}  // namespace harness
