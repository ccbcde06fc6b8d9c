#include "harness/workload/model_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "fsdp/core/errors.h"
#include "harness/workload/describe.h"

namespace harness {

using fsdp::ConfigError;
using M = ModelSettings;

const std::vector<ModelField>& model_fields() {
  constexpr std::int64_t kWidth = 1 << 20, kSteps = std::int64_t{1} << 31;
  static const std::vector<ModelField> table = {
      {"family", &M::family},
      {"layers", &M::layers, 1 << 16},
      {"decoder_layers", &M::decoder_layers, 1 << 16},
      {"dim", &M::dim, kWidth},
      {"heads", &M::heads, kWidth},
      {"kv_heads", &M::kv_heads, kWidth},
      {"head_dim", &M::head_dim, 1 << 16},
      {"ffn", &M::ffn, 1 << 22},
      {"vocab", &M::vocab, kSteps},
      {"positions", &M::positions, kSteps},
      {"classes", &M::classes, kSteps},
      {"seq", &M::seq, kSteps - 1},
      {"tied", &M::tied},
      {"gated", &M::gated},
      {"norm_eps", &M::norm_eps},
      {"rope_theta", &M::rope_theta},
      {"rotary_pct", &M::rotary_pct},
      {"parallel_residual", &M::parallel_residual},
      {"relative_buckets", &M::relative_buckets, 1 << 16},
      {"relative_span", &M::relative_span, kSteps},
      {"frozen", &M::frozen},
      {"ignored", &M::ignored},
      {"file", &M::file},
      {"fingerprint", &M::fingerprint},
      {"batch", &M::batch, kSteps - 1},
      {"fixed_seq", &M::fixed_seq},
  };
  return table;
}

namespace {

std::string given(const std::string& name, const std::string& text) { return "[set] " + name + "=" + text; }

template <class T>
bool parse(const std::string& text, T& value) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && r.ec == std::errc{} && r.ptr == text.data() + text.size();
}

void store(std::int64_t& to, const ModelField& f, const std::string& text) {
  std::int64_t n = 0;
  if (!parse(text, n) || n < 1 || n > f.most)
    throw ConfigError(given(f.name, text) + " is not a whole number from 1 to " + std::to_string(f.most));
  to = n;
}
void store(double& to, const ModelField& f, const std::string& text) {
  double x = 0;
  if (!parse(text, x) || !std::isfinite(x) || x <= 0)
    throw ConfigError(given(f.name, text) + " is not a number above 0");
  to = x;
}
void store(bool& to, const ModelField& f, const std::string& text) {
  if (text != "true" && text != "false") throw ConfigError(given(f.name, text) + " is neither true nor false");
  to = text == "true";
}
void store(std::string& to, const ModelField& f, const std::string& text) {
  if (text.empty() || text.find_first_of("{}") != std::string::npos)
    throw ConfigError(given(f.name, text) + " is not a name");
  to = text;
}

std::string text_of(std::int64_t n) { return std::to_string(n); }
std::string text_of(bool b) { return b ? "true" : "false"; }
std::string text_of(const std::string& s) { return s; }
std::string text_of(double x) {
  std::string out(32, '\0');
  const auto r = std::to_chars(out.data(), out.data() + out.size(), x);
  out.resize(static_cast<std::size_t>(r.ptr - out.data()));
  return out;
}

}  // namespace

void set_model_field(ModelSettings& m, const std::string& name, const std::string& text) {
  for (const ModelField& f : model_fields()) {
    if (name != f.name) continue;
    return std::visit([&](auto member) { store(m.*member, f, text); }, f.member);
  }
  SHARDSCOPE_CHECK(false, "no field " + name);
}

std::string model_field_text(const ModelSettings& m, const ModelField& field) {
  return std::visit([&](auto member) { return text_of(m.*member); }, field.member);
}

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

namespace {

void check_divides(const char* part, std::int64_t divisor, const char* whole, std::int64_t n) {
  if (n % divisor == 0) return;
  throw ConfigError("[set] " + std::string(whole) + "=" + std::to_string(n) + " is not a multiple of " + part + "=" +
                    std::to_string(divisor) + "; set one of them");
}

void check_heads(const ModelSettings& m, bool grouped) {
  constexpr std::int64_t kWidest = 1 << 22;
  if (m.head_dim == 0) check_divides("heads", m.heads, "dim", m.dim);
  check_divides("kv_heads", m.kv_heads, "heads", m.heads);
  if (m.heads * m.head_size() > kWidest)
    throw ConfigError("[set] heads=" + std::to_string(m.heads) + " of head_dim=" + std::to_string(m.head_dim) +
                      " are wider than " + std::to_string(kWidest) + "; set one of them");
  if (!grouped && m.kv_heads != m.heads)
    throw ConfigError("[set] " + m.family +
                      " has no grouped heads; leave kv_heads out, or equal to heads=" + std::to_string(m.heads));
}

void check_rotary(const ModelSettings& m, double part) {
  const std::int64_t head = m.head_size();
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(head) * part);
  if (rotary >= 2 && rotary % 2 == 0 && rotary <= head) return;
  throw ConfigError("[set] dim=" + std::to_string(m.dim) + " over heads=" + std::to_string(m.heads) + " leaves " +
                    std::to_string(rotary) + " rotary dimensions of a head of " + std::to_string(head) +
                    "; they must be even and at least 2");
}

}  // namespace

void check_model(const ModelSettings& m) {
  const Family& family = family_of(m.family);
  const auto has = [&](const char* key) {
    return std::find(family.keys.begin(), family.keys.end(), key) != family.keys.end();
  };
  const bool rotates = has("rope_theta"), some = has("rotary_pct");
  if (has("heads")) check_heads(m, rotates && !some);
  if (rotates) check_rotary(m, some ? m.rotary_pct : 1.0);
  for (const char* key : {"positions", "classes"}) {
    const std::int64_t n = key[0] == 'p' ? m.positions : m.classes;
    if (has(key) && n < 1) throw ConfigError("[set] " + m.family + " needs " + key + "; set " + key + "=1000");
  }
  if (has("relative_buckets") && m.relative_buckets < 4)
    throw ConfigError("[set] relative_buckets=" + std::to_string(m.relative_buckets) + " are too few; set at least 4");
  const std::int64_t near = m.relative_buckets / 2;
  if (has("relative_buckets") && m.relative_span <= near)
    throw ConfigError(
        "[set] relative_span=" + std::to_string(m.relative_span) + " does not pass the " + std::to_string(near) +
        " near distances of relative_buckets=" + std::to_string(m.relative_buckets) + "; set a longer one");
}

}  // namespace harness
