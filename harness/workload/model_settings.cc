#include "harness/workload/model_settings.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"

namespace harness {
namespace {

using fsdp::ConfigError;

ModelSettings llama(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
                    std::int64_t vocab, std::int64_t seq, double rope_theta, bool tied = false) {
  ModelSettings m;
  m.layers = layers, m.dim = dim, m.heads = heads, m.kv_heads = kv_heads, m.ffn = ffn, m.vocab = vocab;
  m.seq = seq, m.rope_theta = rope_theta, m.tied = tied;
  return m;
}

ModelSettings gpt_neox(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t vocab,
                       std::int64_t seq) {
  ModelSettings m = llama(layers, dim, heads, heads, 4 * dim, vocab, seq, 10000.0);
  m.family = "gpt-neox";
  return m;
}

// Dimensions of the published models; the default sequence length is the one of their pre-training. The table of
// gpt-neox-20b is padded from the tokenizer's 50,257 rows to 50,432, which gives the published parameter count.
const std::vector<std::pair<std::string, ModelSettings>>& presets() {
  static const std::vector<std::pair<std::string, ModelSettings>> table = {
      {"llama", ModelSettings{}},
      {"gpt-neox", gpt_neox(4, 128, 4, 512, 64)},
      {"llama-2-7b", llama(32, 4096, 32, 32, 11008, 32000, 4096, 1e4)},
      {"llama-2-13b", llama(40, 5120, 40, 40, 13824, 32000, 4096, 1e4)},
      {"llama-2-70b", llama(80, 8192, 64, 8, 28672, 32000, 4096, 1e4)},
      {"llama-3-8b", llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5)},
      {"llama-3-70b", llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5)},
      {"llama-3.1-405b", llama(126, 16384, 128, 8, 53248, 128256, 8192, 5e5)},
      {"llama-3.2-1b", llama(16, 2048, 32, 8, 8192, 128256, 8192, 5e5, true)},
      {"gpt-neox-20b", gpt_neox(44, 6144, 64, 50432, 2048)},
  };
  return table;
}

ModelSettings preset(const std::string& model) {
  for (const auto& [name, settings] : presets()) {
    if (name == model) return settings;
  }
  const auto ends_with = [&](const std::string& end) {
    return model.size() >= end.size() && model.compare(model.size() - end.size(), end.size(), end) == 0;
  };
  if (model.find('/') != std::string::npos || ends_with(".json")) {
    throw ConfigError("[model] '" + model +
                      "' looks like a config.json, which is not supported yet; take a preset and " +
                      "override its dimensions with set");
  }
  throw ConfigError("[model] there is no model '" + model +
                    "'; nearest: " + fsdp::nearest_names(model, model_presets()));
}

// An overridable dimension. Limits keep every count of the model inside 64 bits.
struct Dimension {
  const char* name;
  std::int64_t ModelSettings::*field;
  std::int64_t most;
};
constexpr Dimension kDimensions[] = {
    {"layers", &ModelSettings::layers, 1 << 16}, {"dim", &ModelSettings::dim, 1 << 20},
    {"heads", &ModelSettings::heads, 1 << 20},   {"kv_heads", &ModelSettings::kv_heads, 1 << 20},
    {"ffn", &ModelSettings::ffn, 1 << 22},       {"vocab", &ModelSettings::vocab, std::int64_t{1} << 31},
};

std::vector<std::string> allowed_keys() {
  std::vector<std::string> keys;
  for (const Dimension& d : kDimensions) keys.emplace_back(d.name);
  keys.emplace_back("tied");
  return keys;
}

std::int64_t parse_dimension(const Dimension& d, const std::string& text) {
  std::int64_t n = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
  const bool whole = !text.empty() && r.ec == std::errc{} && r.ptr == text.data() + text.size();
  if (!whole || n < 1 || n > d.most) {
    throw ConfigError("[set] " + std::string(d.name) + "=" + text + " is not a whole number from 1 to " +
                      std::to_string(d.most));
  }
  return n;
}

bool parse_bool(const std::string& key, const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw ConfigError("[set] " + key + "=" + text + " is neither true nor false");
}

void apply_override(ModelSettings& m, const std::string& key, const std::string& value) {
  if (key == "tied") {
    m.tied = parse_bool(key, value);
    return;
  }
  for (const Dimension& d : kDimensions) {
    if (key != d.name) continue;
    m.*d.field = parse_dimension(d, value);
    return;
  }
  std::string allowed;
  for (const std::string& k : allowed_keys()) allowed += (allowed.empty() ? "" : ", ") + k;
  throw ConfigError("[set] there is no dimension '" + key +
                    "' (nearest: " + fsdp::nearest_names(key, allowed_keys(), 1) + "); allowed: " + allowed);
}

// "a=1,b=2" -> pairs, in order.
std::vector<std::pair<std::string, std::string>> split_overrides(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    std::erase(item, ' ');
    const auto equals = item.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError("[set] '" + item + "' is not KEY=VALUE; for example layers=8,dim=512");
    }
    const std::string key = item.substr(0, equals);
    const auto same = [&](const auto& p) { return p.first == key; };
    if (std::any_of(pairs.begin(), pairs.end(), same)) throw ConfigError("[set] " + key + " is given twice; keep one");
    pairs.emplace_back(key, item.substr(equals + 1));
  }
  return pairs;
}

void check_divides(const char* part, std::int64_t divisor, const char* whole, std::int64_t n) {
  if (n % divisor == 0) return;
  throw ConfigError("[set] " + std::string(whole) + "=" + std::to_string(n) + " is not a multiple of " + part + "=" +
                    std::to_string(divisor) + "; set one of them");
}

void check(const ModelSettings& m) {
  check_divides("heads", m.heads, "dim", m.dim);
  check_divides("kv_heads", m.kv_heads, "heads", m.heads);
  const std::int64_t head = m.dim / m.heads;
  const auto rotary =
      m.family == "gpt-neox" ? static_cast<std::int64_t>(static_cast<double>(head) * m.rotary_pct) : head;
  if (rotary < 2 || rotary % 2 != 0) {
    throw ConfigError("[set] dim=" + std::to_string(m.dim) + " over heads=" + std::to_string(m.heads) + " leaves " +
                      std::to_string(rotary) + " rotary dimensions of a head of " + std::to_string(head) +
                      "; they must be even and at least 2");
  }
  if (m.family == "gpt-neox" && m.kv_heads != m.heads) {
    throw ConfigError("[set] gpt-neox has no grouped heads; leave kv_heads out, or equal to heads=" +
                      std::to_string(m.heads));
  }
}

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const auto& entry : presets()) names.push_back(entry.first);
  return names;
}

ModelSettings resolve_model(const std::string& model, const std::string& overrides) {
  const ModelSettings base = preset(model);
  ModelSettings m = base;
  const auto pairs = split_overrides(overrides);
  for (const auto& [key, value] : pairs) apply_override(m, key, value);
  const auto given = [&](const char* key) {
    return std::any_of(pairs.begin(), pairs.end(), [&](const auto& p) { return p.first == key; });
  };
  // What follows from another dimension in the preset goes on following it.
  if (!given("kv_heads") && base.kv_heads == base.heads) m.kv_heads = m.heads;
  if (!given("ffn") && m.family == "gpt-neox") m.ffn = 4 * m.dim;
  check(m);
  return m;
}

}  // namespace harness
