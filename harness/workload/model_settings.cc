#include "harness/workload/model_settings.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "harness/workload/describe.h"
#include "harness/workload/exported_model.h"
#include "harness/workload/model_config.h"
#include "harness/workload/model_fields.h"
#include "harness/workload/model_presets.h"

namespace harness {
namespace {

using fsdp::ConfigError;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
// "NAME{family=...,layers=...}", as model_text() makes it.
bool is_model_text(const std::string& model) { return model.find('{') != std::string::npos && model.back() == '}'; }
bool is_path(const std::string& model) {
  return !is_model_text(model) &&
         (model.find('/') != std::string::npos || ends_with(model, ".json") || ends_with(model, ".pt2"));
}

// A path as a field of a model's text, where ',', '=', '{', '}' and spaces have a meaning.
std::string escaped(const std::string& path) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '/' || c == '.' || c == '-' || c == '_')
      out += c;
    else
      out.append("%").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return out;
}
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

ModelSettings read_exported(const std::string& path) {
  const std::string file = std::filesystem::absolute(path).lexically_normal().string();
  const auto model = exported_model(file, "");
  ModelSettings m;
  m.family = "graph";
  m.file = escaped(file);
  m.fingerprint = model->fingerprint;
  m.batch = model->batch;
  m.seq = model->seq > 0 ? model->seq : 1;
  m.fixed_seq = true;
  return m;
}

ModelSettings read_file(const std::string& path) {
  if (ends_with(path, ".pt2")) return read_exported(path);
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad() || text.empty())
    throw ConfigError("[model] " + path +
                      " cannot be read, or is empty; give the path of a config.json or .pt2, or a preset");
  return model_from_config(text, path);
}

ModelSettings read_text(const std::string& text) {
  const auto open = text.find('{');
  ModelSettings m;
  std::vector<std::string> names;
  for (const ModelField& f : model_fields()) names.emplace_back(f.name);
  for (const auto& [key, value] : split_overrides(text.substr(open + 1, text.size() - open - 2))) {
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw ConfigError("[model] " + text.substr(0, open) + " has no '" + key +
                        "'; nearest: " + fsdp::nearest_names(key, names, 1));
    set_model_field(m, key, value);
  }
  return m;
}

// The path as the file system takes it.
ModelSettings with_plain_path(ModelSettings m) {
  m.file = unescaped(m.file);
  return m;
}

ModelSettings base_of(const std::string& model) {
  if (is_path(model)) return read_file(model);
  if (is_model_text(model)) return read_text(model);
  for (const auto& [name, settings] : model_preset_table()) {
    if (name == model) return settings;
  }
  throw ConfigError("[model] there is no model '" + model +
                    "'; nearest: " + fsdp::nearest_names(model, model_presets()));
}

void apply_override(ModelSettings& m, const std::string& key, const std::string& value) {
  const std::vector<std::string>& keys = family_of(m.family).keys;
  if (std::find(keys.begin(), keys.end(), key) != keys.end()) return set_model_field(m, key, value);
  std::string allowed;
  for (const std::string& k : keys) allowed += (allowed.empty() ? "" : ", ") + k;
  throw ConfigError("[set] there is no dimension '" + key + "' (nearest: " + fsdp::nearest_names(key, keys, 1) +
                    "); allowed for " + m.family + ": " + allowed);
}

// mistral-7b/config.json -> mistral-7b, tiny.json -> tiny; letters, digits and a few marks.
std::string name_of_path(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
  }
  std::string name = parts.back();
  if (ends_with(name, ".json")) name.resize(name.size() - 5);
  if (ends_with(name, ".pt2")) name.resize(name.size() - 4);
  const bool folder = parts.size() > 1 && parts[parts.size() - 2].find_first_not_of('.') != std::string::npos;
  if (name == "config" && folder) name = parts[parts.size() - 2];
  return name.empty() ? "config" : name;
}

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const auto& entry : model_preset_table()) names.push_back(entry.first);
  return names;
}

ModelSettings resolve_model(const std::string& model, const std::string& overrides) {
  const ModelSettings base = base_of(model);
  ModelSettings m = base;
  const Family& family = family_of(m.family);
  const auto pairs = split_overrides(overrides);
  for (const auto& [key, value] : pairs) apply_override(m, key, value);
  const auto given = [&](const char* key) {
    return std::any_of(pairs.begin(), pairs.end(), [&](const auto& p) { return p.first == key; });
  };
  // What follows from another dimension in the preset goes on following it.
  if (!given("kv_heads") && base.kv_heads == base.heads) m.kv_heads = m.heads;
  if (!given("ffn") && family.ffn_follows && base.ffn == 4 * base.dim) m.ffn = 4 * m.dim;
  check_model(m);
  return with_plain_path(std::move(m));
}

std::string model_text(const std::string& model) {
  if (!is_path(model)) {
    resolve_model(model, "");
    return model;
  }
  const ModelSettings m = read_file(model), standard;
  std::string fields;
  for (const ModelField& f : model_fields()) {
    const std::string text = model_field_text(m, f);
    if (text != model_field_text(standard, f)) fields += (fields.empty() ? "" : ",") + std::string(f.name) + "=" + text;
  }
  return name_of_path(model) + "{" + fields + "}";
}

std::string model_name(const std::string& text) { return text.substr(0, text.find('{')); }

void check_sequence(const ModelSettings& m, std::int64_t seq) {
  if (m.fixed_seq && seq != m.seq)
    throw ConfigError("[seq] " + std::to_string(seq) + " is not the length " + std::to_string(m.seq) + " that " +
                      m.file + " was exported for; leave seq out, or export it again with --seq " +
                      std::to_string(seq));
  if (m.positions == 0 || seq <= m.positions) return;
  throw ConfigError("[seq] " + std::to_string(seq) + " is more than the model's " + std::to_string(m.positions) +
                    " positions; use at most " + std::to_string(m.positions) +
                    ", or set positions=" + std::to_string(seq));
}

void check_batch(const ModelSettings& m, std::int64_t batch) {
  if (m.batch == 0 || batch == m.batch) return;
  throw ConfigError("[batch] " + std::to_string(batch) + " is not the batch of " + std::to_string(m.batch) + " that " +
                    m.file + " was exported for; use --batch " + std::to_string(m.batch) +
                    ", or export it again with --batch " + std::to_string(batch));
}

std::vector<std::string> model_notes(const ModelSettings& m) {
  if (m.family == "graph") {
    if (exported_model(m.file, m.fingerprint)->has_weights) return {};
    return {m.file + " holds shapes and no weights: initial values are this program's, and losses say nothing"};
  }
  if (m.ignored.empty()) return {};
  return {"the model's " + m.ignored +
          " is not applied: every position attends to all before it, at plain frequencies"};
}

}  // namespace harness
