#include "harness/workload/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "harness/workload/model_fields.h"

namespace harness {
namespace {

using fsdp::ConfigError;
using nlohmann::json;

// What these families do not have, torch.export has.
std::string export_command(const std::string& path) {
  return "; any model of transformers can be exported: shardscope export --hf " + path + " -o model.pt2 --no-weights";
}

// The file's keys, with errors that name file and key.
class Config {
 public:
  Config(const json& document, std::string path) : document_(document), path_(std::move(path)) {}

  std::int64_t whole(const char* key) const {
    const json* v = find(key);
    if (v == nullptr) fail(key, "is missing; it is a whole number above 0");
    if (!v->is_number_integer() || v->get<std::int64_t>() < 1) fail(key, "is not a whole number above 0", *v);
    return v->get<std::int64_t>();
  }
  std::int64_t whole(const char* key, std::int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : whole(key);
  }
  double number(const char* key, double otherwise) const {
    const json* v = find(key);
    if (v == nullptr) return otherwise;
    if (!v->is_number() || !(v->get<double>() > 0)) fail(key, "is not a number above 0", *v);
    return v->get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    const json* v = find(key);
    if (v == nullptr) return otherwise;
    if (!v->is_boolean()) fail(key, "is neither true nor false", *v);
    return v->get<bool>();
  }
  std::string word(const char* key, const std::string& otherwise) const {
    const json* v = find(key);
    if (v == nullptr) return otherwise;
    if (!v->is_string()) fail(key, "is not a text", *v);
    return v->get<std::string>();
  }
  // What the models here have; anything else is refused.
  void must_be(const char* key, bool value) const {
    if (flag(key, value) != value)
      fail(key, std::string("must be ") + (value ? "true" : "false"), *find(key), export_command(path_));
  }
  void must_be(const char* key, const std::vector<std::string>& words) const {
    const std::string have = word(key, words.front());
    if (std::find(words.begin(), words.end(), have) != words.end()) return;
    std::string allowed;
    for (const std::string& w : words) allowed += (allowed.empty() ? "" : ", ") + w;
    fail(key, "is not supported; supported: " + allowed, *find(key), export_command(path_));
  }
  // Null counts as absent.
  const json* find(const char* key) const {
    const auto at = document_.find(key);
    return at == document_.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void fail(const std::string& key, const std::string& what, const json& value = nullptr,
                         const std::string& remedy = "") const {
    const std::string have = value.is_null() ? "" : " (" + value.dump() + ")";
    throw ConfigError("[model] " + path_ + ": key " + key + have + " " + what + remedy);
  }

 private:
  const json& document_;
  std::string path_;
};

// Newer files keep theta, and whether positions are stretched, in rope_parameters.
void read_rope(const Config& c, const char* theta, ModelSettings& m) {
  m.rope_theta = c.number(theta, 10000.0);
  if (const json* rope = c.find("rope_parameters"); rope != nullptr && rope->is_object()) {
    if (rope->contains("rope_theta") && (*rope)["rope_theta"].is_number()) m.rope_theta = (*rope)["rope_theta"];
    const auto type = rope->find("rope_type");
    if (type != rope->end() && !type->is_null() && *type != "default") m.ignored += "+rope_parameters";
  }
  if (c.find("rope_scaling") != nullptr) m.ignored += "+rope_scaling";
}

ModelSettings llama(const Config& c, const char* family) {
  ModelSettings m;
  m.family = family;
  m.layers = c.whole("num_hidden_layers"), m.dim = c.whole("hidden_size"), m.ffn = c.whole("intermediate_size");
  m.heads = c.whole("num_attention_heads"), m.kv_heads = c.whole("num_key_value_heads", m.heads);
  m.vocab = c.whole("vocab_size"), m.seq = c.whole("max_position_embeddings", 2048);
  m.head_dim = c.whole("head_dim", m.family == "qwen3" ? 128 : 0);
  if (m.head_dim * m.heads == m.dim) m.head_dim = 0;
  m.tied = c.flag("tie_word_embeddings", false);
  m.norm_eps = c.number("rms_norm_eps", 1e-6);
  c.must_be("hidden_act", std::vector<std::string>{"silu"});
  if (m.family != "qwen2") c.must_be("attention_bias", false);
  c.must_be("mlp_bias", false);
  read_rope(c, "rope_theta", m);
  const bool slides = m.family == "mistral" || c.flag("use_sliding_window", false);
  if (slides && c.find("sliding_window") != nullptr) m.ignored += "+sliding_window";
  return m;
}
ModelSettings plain_llama(const Config& c) { return llama(c, "llama"); }
ModelSettings mistral(const Config& c) { return llama(c, "mistral"); }
ModelSettings qwen2(const Config& c) { return llama(c, "qwen2"); }
ModelSettings qwen3(const Config& c) { return llama(c, "qwen3"); }

ModelSettings gpt_neox(const Config& c) {
  ModelSettings m;
  m.family = "gpt-neox";
  m.layers = c.whole("num_hidden_layers"), m.dim = c.whole("hidden_size"), m.ffn = c.whole("intermediate_size");
  m.heads = m.kv_heads = c.whole("num_attention_heads");
  m.vocab = c.whole("vocab_size"), m.seq = c.whole("max_position_embeddings", 2048);
  m.tied = c.flag("tie_word_embeddings", false);
  m.norm_eps = c.number("layer_norm_eps", 1e-5);
  m.rotary_pct = c.number("rotary_pct", 0.25);
  m.parallel_residual = c.flag("use_parallel_residual", true);
  c.must_be("hidden_act", std::vector<std::string>{"gelu"});
  c.must_be("attention_bias", true);
  read_rope(c, c.find("rotary_emb_base") != nullptr ? "rotary_emb_base" : "rope_theta", m);
  return m;
}

ModelSettings gpt2(const Config& c) {
  ModelSettings m;
  m.family = "gpt2";
  m.layers = c.whole("n_layer"), m.dim = c.whole("n_embd"), m.ffn = c.whole("n_inner", 4 * m.dim);
  m.heads = m.kv_heads = c.whole("n_head");
  m.vocab = c.whole("vocab_size"), m.positions = m.seq = c.whole("n_positions");
  m.tied = c.flag("tie_word_embeddings", true);
  m.norm_eps = c.number("layer_norm_epsilon", 1e-5);
  c.must_be("activation_function", std::vector<std::string>{"gelu_new", "gelu_pytorch_tanh"});
  c.must_be("scale_attn_weights", true);
  c.must_be("scale_attn_by_inverse_layer_idx", false);
  c.must_be("add_cross_attention", false);
  return m;
}

ModelSettings t5(const Config& c) {
  ModelSettings m;
  m.family = "t5";
  m.layers = c.whole("num_layers"), m.decoder_layers = c.whole("num_decoder_layers", m.layers);
  if (m.decoder_layers == m.layers) m.decoder_layers = 0;
  m.dim = c.whole("d_model"), m.ffn = c.whole("d_ff");
  m.heads = m.kv_heads = c.whole("num_heads"), m.head_dim = c.whole("d_kv");
  m.vocab = c.whole("vocab_size"), m.seq = c.whole("n_positions", 512);
  m.tied = c.flag("tie_word_embeddings", true);
  m.norm_eps = c.number("layer_norm_epsilon", 1e-6);
  m.relative_buckets = c.whole("relative_attention_num_buckets", 32);
  m.relative_span = c.whole("relative_attention_max_distance", 128);
  c.must_be("feed_forward_proj", std::vector<std::string>{"relu", "gated-gelu"});
  m.gated = c.word("feed_forward_proj", "relu") == "gated-gelu";
  return m;
}

struct Architecture {
  const char* name;
  ModelSettings (*read)(const Config& c);
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", plain_llama},  {"MistralForCausalLM", mistral},  {"Qwen2ForCausalLM", qwen2},
    {"Qwen3ForCausalLM", qwen3},        {"GPTNeoXForCausalLM", gpt_neox}, {"GPT2LMHeadModel", gpt2},
    {"T5ForConditionalGeneration", t5},
};

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

json parse_document(const std::string& text, const std::string& path) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& e) {
    const std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line ..."
    throw ConfigError("[model] " + path + " is not JSON: " + what.substr(what.find("] ") + 2) +
                      "; give the config.json of the model");
  }
  if (!document.is_object()) throw ConfigError("[model] " + path + " is not a JSON object; give a config.json");
  return document;
}

const Architecture& architecture_of(const json& document, const std::string& path) {
  const std::string supported = joined(config_architectures());
  const auto named = document.find("architectures");
  if (named == document.end() || !named->is_array() || named->empty() || !named->front().is_string())
    throw ConfigError("[model] " + path + ": key architectures is missing; it is a list with one of " + supported);
  const auto name = named->front().get<std::string>();
  for (const Architecture& a : kArchitectures)
    if (name == a.name) return a;
  throw ConfigError("[model] " + path + ": key architectures names " + name +
                    ", which is not supported; supported: " + supported + export_command(path));
}

// "[set] heads=..." of a check, as an error of the file.
void check_file(const ModelSettings& m, const std::string& path) {
  try {
    for (const ModelField& f : model_fields()) {
      const auto* number = std::get_if<std::int64_t ModelSettings::*>(&f.member);
      if (number != nullptr && m.*(*number) > f.most)
        throw ConfigError("[set] " + std::string(f.name) + "=" + std::to_string(m.*(*number)) + " is more than " +
                          std::to_string(f.most));
    }
    check_model(m);
  } catch (const ConfigError& e) {
    const std::string what = e.what();
    const auto end = what.find("] ");
    throw ConfigError("[model] " + path + ": " + (end == std::string::npos ? what : what.substr(end + 2)));
  }
}

}  // namespace

std::vector<std::string> config_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

ModelSettings model_from_config(const std::string& text, const std::string& path) {
  const json document = parse_document(text, path);
  ModelSettings m = architecture_of(document, path).read(Config(document, path));
  if (!m.ignored.empty()) m.ignored.erase(0, 1);
  check_file(m, path);
  return m;
}

}  // namespace harness
