#include "harness/cost/yaml_fields.h"

#include <cmath>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/yaml_text.h"

namespace harness::cost {
namespace {

std::string at_line(const std::string& place, const YAML::Mark& mark) {
  return mark.is_null() ? place : place + ":" + std::to_string(mark.line + 1);
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& place) {
  try {
    return fsdp::load_yaml(text, place);
  } catch (const YAML::Exception& e) {
    throw fsdp::ConfigError(at_line(place, e.mark) + ": [hardware] this is not YAML (" + e.msg +
                            "); close what is open there");
  }
}

Fields::Fields(YAML::Node node, std::string place, std::string path)
    : node_(std::move(node)), place_(std::move(place)), path_(std::move(path)) {
  if (!node_.IsMap()) fail("", "is not a mapping of keys to values");
}

void Fields::fail(const std::string& key, const std::string& what) const {
  const YAML::Node at = !key.empty() && node_.IsMap() && node_[key] ? node_[key] : node_;
  std::string name = path_;
  if (!key.empty()) name += (name.empty() ? "" : ".") + key;
  throw fsdp::ConfigError(at_line(place_, at.Mark()) + ": [" + (name.empty() ? "hardware" : name) + "] " + what);
}

YAML::Node Fields::take(const std::string& key) {
  known_.insert(key);
  return node_[key];
}

bool Fields::has(const std::string& key) {
  const YAML::Node n = take(key);
  return n && !n.IsNull();
}

void Fields::number(const std::string& key, double& out) {
  if (!has(key)) return;
  const YAML::Node n = node_[key];
  double v = 0;
  try {
    v = n.as<double>();
  } catch (const YAML::Exception&) {
    fail(key, "is not a number" + (n.IsScalar() ? " but '" + n.Scalar() + "'" : "") + "; use a number from 0");
  }
  if (!std::isfinite(v) || v < 0) fail(key, "is " + n.Scalar() + "; use a finite number from 0");
  out = v;
}

void Fields::number(const std::string& key, int& out) {
  double v = out;
  number(key, v);
  if (v != std::floor(v) || v > 1e9) fail(key, "is not a whole number; use one from 0");
  out = static_cast<int>(v);
}

void Fields::text(const std::string& key, std::string& out) {
  if (!has(key)) return;
  if (!node_[key].IsScalar()) fail(key, "is not a text");
  out = node_[key].Scalar();
}

void Fields::flag(const std::string& key, bool& out) {
  if (!has(key)) return;
  try {
    out = node_[key].as<bool>();
  } catch (const YAML::Exception&) {
    fail(key, "is neither true nor false");
  }
}

void Fields::texts(const std::string& key, std::vector<std::string>& out) {
  if (!has(key)) return;
  const YAML::Node n = node_[key];
  if (!n.IsSequence()) fail(key, "is not a list of texts");
  out.clear();
  for (const YAML::Node& entry : n) {
    if (!entry.IsScalar()) fail(key, "is not a list of texts");
    out.push_back(entry.Scalar());
  }
}

void Fields::map(const std::string& key, const std::function<void(Fields&)>& read) {
  if (!has(key)) return;
  Fields inner(node_[key], place_, path_.empty() ? key : path_ + "." + key);
  read(inner);
  inner.done();
}

void Fields::each(const std::string& key, const std::function<void(const std::string&, Fields&)>& read) {
  map(key, [&](Fields& inner) {
    for (const auto& entry : inner.node_) {
      const auto name = entry.first.as<std::string>();
      inner.map(name, [&](Fields& f) { read(name, f); });
    }
  });
}

void Fields::list(const std::string& key, const std::function<void(Fields&)>& read) {
  if (!has(key)) return;
  const YAML::Node n = node_[key];
  if (!n.IsSequence()) fail(key, "is not a list");
  for (const YAML::Node& entry : n) {
    Fields inner(entry, place_, path_.empty() ? key : path_ + "." + key);
    read(inner);
    inner.done();
  }
}

void Fields::done() const {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& entry : node_) {
    const auto key = entry.first.as<std::string>();
    if (known_.count(key) == 0) fail(key, "is not a key; nearest: " + fsdp::nearest_names(key, known));
  }
}

}  // namespace harness::cost
