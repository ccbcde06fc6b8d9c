// ModelSettings: the dimensions of a model of one of the families. Plain C++; the torch models and the torch-free
// ModuleTree builders are both made from it.
#pragma once
#include <string>
#include <vector>

#include "fsdp/core/types.h"
#include "fsdp/plan/module_tree.h"

namespace harness {

struct ModelSettings {
  std::string family = "llama";  // one of families(), describe.h
  std::int64_t layers = 4, dim = 128, heads = 4, kv_heads = 4, ffn = 352, vocab = 512;
  std::int64_t head_dim = 0;        // 0: dim / heads
  std::int64_t decoder_layers = 0;  // t5; 0: as many as layers
  std::int64_t positions = 0;       // gpt2: rows of the table of positions, the longest sequence
  std::int64_t classes = 0;         // embedding-classifier, mlp
  std::int64_t seq = 64;            // default sequence length
  bool tied = false;
  bool gated = false;  // t5: feed-forward of three matrices with gelu, as v1.1; else two with relu
  double norm_eps = 1e-5, rope_theta = 10000.0;
  double rotary_pct = 0.25;                                 // gpt-neox
  bool parallel_residual = true;                            // gpt-neox
  std::int64_t relative_buckets = 32, relative_span = 128;  // t5: of distances; from where on they share the last
  std::string frozen;  // parameters that do not train: patterns of names with '*', joined by '+'
  // family graph: what torch.export wrote (exported_model.h).
  std::string file, fingerprint;
  std::int64_t batch = 0;  // that it was exported for; 0: any
  bool fixed_seq = false;  // it was exported for `seq` alone
  std::string ignored;     // what a published configuration has and these models do not apply, joined by '+'
  fsdp::Dtype buffer_dtype = fsdp::Dtype::kFloat32;  // of rotary tables, which all blocks share

  std::int64_t head_size() const { return head_dim > 0 ? head_dim : dim / heads; }
  std::int64_t decoders() const { return decoder_layers > 0 ? decoder_layers : layers; }
};

// Preset names, for --help and for "nearest names" in errors.
std::vector<std::string> model_presets();

// `model` setting + `set` overrides ("layers=8,dim=512") -> settings. The model is a preset, the path of a Hugging Face
// config.json or of a .pt2, or what model_text() made. Throws fsdp::ConfigError naming the key (and the file) and what
// is allowed (unknown key, not an integer, dim not divisible by heads, heads not by kv_heads, non-positive, ...).
ModelSettings resolve_model(const std::string& model, const std::string& overrides);

// A preset's name as it is; the path of a config.json as "NAME{family=...,layers=...}", which says the whole content:
// what travels to ranks and into case ids, so that the file is read once. Throws as resolve_model.
std::string model_text(const std::string& model);
// "llama-3-8b", or the NAME of a text of the other form.
std::string model_name(const std::string& text);

// Throws ConfigError when the model cannot see `seq` positions.
void check_sequence(const ModelSettings& m, std::int64_t seq);
// Throws ConfigError when the model was exported for another batch.
void check_batch(const ModelSettings& m, std::int64_t batch);
// Sentences about what the model does not apply of its published configuration.
std::vector<std::string> model_notes(const ModelSettings& m);

// The model's modules and parameters, names as in Hugging Face, without torch.
fsdp::ModuleTree describe_model(const ModelSettings& m);

}  // namespace harness
