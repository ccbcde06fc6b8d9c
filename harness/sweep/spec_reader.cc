// Reads sweep specs. Every error names file and line.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"
#include "fsdp/core/utf8.h"
#include "fsdp/plan/yaml_text.h"
#include "harness/analysis/signed_rank.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/spec.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

class SpecReader {
 public:
  SpecReader(const std::string& file, FileTexts files) : files_(std::move(files)) { spec_.file = file; }

  SweepSpec read(const std::string& text) {
    spec_.text = text;
    spec_.name = fs::path(spec_.file).stem().string();
    const YAML::Node root = load(text);
    if (!root.IsMap())
      fail(root, "a sweep spec is a map with the keys base and axes; write for instance axes: {wrap: [root, block]}");
    std::optional<YAML::Node> base, axes, exclude, boundary;  // read after the files, in this order
    const Handlers handlers = {{"name", [&](const YAML::Node& n) { spec_.name = scalar(n, "name"); }},
                               {"files", [&](const YAML::Node& n) { read_files(n); }},
                               {"base", [&](const YAML::Node& n) { base = n; }},
                               {"axes", [&](const YAML::Node& n) { axes = n; }},
                               {"exclude", [&](const YAML::Node& n) { exclude = n; }},
                               {"boundary", [&](const YAML::Node& n) { boundary = n; }},
                               {"interleave", [&](const YAML::Node& n) { read_interleave(n); }},
                               {"repeat", [&](const YAML::Node& n) { read_repeat(n); }},
                               {"trace", [&](const YAML::Node& n) { read_trace(n); }},
                               {"timeout", [&](const YAML::Node& n) { spec_.timeout = duration(n, "timeout"); }}};
    read_map(root, "the spec", handlers);
    if (base) read_base(*base);
    if (axes) read_axes(*axes);
    if (exclude) read_exclude(*exclude);
    if (boundary) read_boundary(*boundary);
    refuse_too_many(root);
    if (said_relative_ci_) spec_.round.alone_relative_ci = spec_.repeat.relative_ci;
    if (spec_.interleave && !said_relative_ci_) spec_.repeat.relative_ci = kPairedMargin / 2;
    spec_.files = files_.taken();
    return std::move(spec_);
  }

 private:
  using Handlers = std::vector<std::pair<std::string, std::function<void(const YAML::Node&)>>>;

  std::string place(const YAML::Mark& mark) const {
    return mark.line >= 0 ? fmt::format("{}:{}", spec_.file, mark.line + 1) : spec_.file;
  }
  [[noreturn]] void fail(const YAML::Node& at, const std::string& what) const {
    throw fsdp::ConfigError(with_place(place(at.Mark()), what));
  }
  // Runs `act`; a ConfigError in it gets the place in front.
  template <class F>
  void at(const YAML::Node& node, F&& act) const {
    try {
      act();
    } catch (const fsdp::ConfigError& e) {
      fail(node, e.what());
    }
  }

  YAML::Node load(const std::string& text) const {
    try {
      return fsdp::load_yaml(text, spec_.file);
    } catch (const YAML::Exception& e) {
      throw fsdp::ConfigError(with_place(
          place(e.mark), fmt::format("not YAML: {}; write keys and values as in `wrap: [root, block]`", e.msg)));
    }
  }

  // Before anything is expanded: a few lines of YAML can name more cases than there are atoms.
  void refuse_too_many(const YAML::Node& root) const {
    double cases = 1;
    std::string product;
    for (const auto& [name, values] : spec_.all_axes()) {
      cases *= static_cast<double>(values.size());
      product += fmt::format("{}{} of {}", product.empty() ? "" : " times ", values.size(), name);
    }
    if (cases > static_cast<double>(kMostCases))
      fail(root,
           fmt::format("{} values are {:.6g} cases, and a sweep has {} at most; take values away, or make several "
                       "sweeps",
                       product, cases, kMostCases));
  }

  static std::string kind(const YAML::Node& n) {
    return n.IsMap() ? "a map" : n.IsSequence() ? "a list" : n.IsNull() ? "empty" : "a value";
  }

  std::string scalar(const YAML::Node& n, const std::string& what) const {
    if (!n.IsScalar() || n.Scalar().empty())
      fail(n, fmt::format("{} is {}; give one value", what, n.IsScalar() ? "empty" : kind(n)));
    return n.Scalar();
  }

  // Calls the handler of each key, in the file's order.
  void read_map(const YAML::Node& map, const std::string& what, const Handlers& handlers) const {
    if (!map.IsMap()) fail(map, fmt::format("{} is {}; give a map of keys and values", what, kind(map)));
    std::vector<std::string> seen, names;
    for (const auto& [name, handler] : handlers) names.push_back(name);
    for (const auto& entry : map) {
      const std::string key = scalar(entry.first, "a key of " + what);
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        fail(entry.first, fmt::format("\"{}\" is given twice in {}; give it once", key, what));
      seen.push_back(key);
      const auto found = std::find_if(handlers.begin(), handlers.end(), [&](const auto& h) { return h.first == key; });
      if (found == handlers.end()) {
        fail(entry.first, fmt::format("\"{}\" is not a key of {}; nearest: {}", key, what, nearest(key, names)));
      }
      found->second(entry.second);
    }
  }

  static std::vector<std::string> setting_names() {
    std::vector<std::string> names;
    for (const SettingRow& row : setting_table()) names.push_back(row.name);
    return names;
  }

  // One handler for every setting.
  Handlers for_settings(const std::function<void(const std::string& name, const YAML::Node&)>& act) const {
    Handlers handlers;
    for (const std::string& name : setting_names())
      handlers.emplace_back(name, [=](const YAML::Node& n) { act(name, n); });
    return handlers;
  }

  // The text of a setting's value: a scalar, or for `set` a map too.
  std::string value_text(const std::string& name, const YAML::Node& n) const {
    if (name != "set" || !n.IsMap()) return beside_spec(name, scalar(n, name));
    std::string out;
    std::vector<std::string> seen;
    for (const auto& entry : n) {
      const std::string key = scalar(entry.first, "a key of set");
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        fail(entry.first, fmt::format("\"{}\" is given twice in set; give it once", key));
      seen.push_back(key);
      out += (out.empty() ? "" : ",") + key + "=" + scalar(entry.second, key);
    }
    return out;
  }

  // Files named in a spec are looked for here, then beside the spec.
  std::string beside_spec(const std::string& name, const std::string& text) const {
    const SettingRow& row = setting_row(name);
    const std::string path = row.file ? row.file(text) : "";
    if (path.empty() || fs::path(path).is_absolute()) return text;
    const std::string beside = (fs::path(spec_.file).parent_path() / path).string();
    return files_.has(path) || !files_.has(beside) ? text : text.substr(0, text.size() - path.size()) + beside;
  }

  // A value's canonical text, and the value itself set in `c`.
  std::string apply(CaseSettings& c, const std::string& name, const YAML::Node& n) {
    const std::string text = value_text(name, n);
    at(n, [&] { apply_setting(c, name, text, files_); });
    return setting_text(c, name);
  }
  std::string canonical(const std::string& name, const YAML::Node& n) {
    CaseSettings c;
    return apply(c, name, n);
  }

  // Contents that stand in the spec itself, in place of the disk's.
  void read_files(const YAML::Node& files) {
    if (!files.IsMap()) fail(files, fmt::format("files is {}; give a map of paths to their contents", kind(files)));
    for (const auto& entry : files) {
      const std::string path = scalar(entry.first, "a path of files");
      files_.give({path, scalar(entry.second, path)});
    }
  }

  // Dimensions have known names: a wrong one is an error of the spec, not of a case.
  void check_dimensions(const YAML::Node& n, const CaseSettings& c) const {
    at(n, [&] { model_of(c); });
  }

  void read_base(const YAML::Node& base) {
    std::optional<YAML::Node> set;
    read_map(base, "base", for_settings([&](const std::string& name, const YAML::Node& n) {
               apply(spec_.base, name, n);
               if (name == "set") set = n;
             }));
    if (set) check_dimensions(*set, spec_.base);
  }

  void read_axes(const YAML::Node& axes) {
    if (!axes.IsMap())
      fail(axes,
           fmt::format("axes is {}; give a map of settings to lists, for instance wrap: [root, block]", kind(axes)));
    has_model_axis_ = axes["model"].IsDefined();
    read_map(axes, "axes", for_settings([&](const std::string& name, const YAML::Node& n) { read_axis(name, n); }));
  }

  void read_axis(const std::string& name, const YAML::Node& n) {
    if (!n.IsSequence())
      fail(n, fmt::format("axis {} is {}; give a list of values, for instance {}: [{}]", name, kind(n), name,
                          setting_text(spec_.base, name)));
    if (n.size() == 0) fail(n, fmt::format("axis {} has no values; give at least one, or leave the axis out", name));
    std::vector<std::string> values;
    for (const YAML::Node& value : n) {
      const std::string text = canonical(name, value);
      if (std::find(values.begin(), values.end(), text) != values.end())
        fail(value, fmt::format("axis {} holds {} twice; give it once", name, text));
      values.push_back(text);
      if (name == "set" && !has_model_axis_) {
        CaseSettings c = spec_.base;
        c.set = merged(spec_.base.set, parse_overrides(text));
        check_dimensions(value, c);
      }
    }
    spec_.axes.emplace_back(name, std::move(values));
  }

  void read_exclude(const YAML::Node& list) {
    if (!list.IsSequence())
      fail(list,
           fmt::format("exclude is {}; give a list of maps, for instance - {{wrap: root, backward_prefetch: pre}}",
                       kind(list)));
    for (const YAML::Node& n : list) {
      SweepSpec::Exclusion exclusion;
      read_map(n, "an entry of exclude", for_settings([&](const std::string& name, const YAML::Node& value) {
                 if (value.IsSequence()) {
                   for (const YAML::Node& one : value) exclusion[name].push_back(canonical(name, one));
                 } else {
                   exclusion[name].push_back(canonical(name, value));
                 }
               }));
      if (exclusion.empty()) fail(n, "an entry of exclude is empty and would leave out every case; name settings");
      spec_.exclude.push_back(std::move(exclusion));
    }
  }

  int count(const YAML::Node& n, const std::string& what) const {
    const auto value = whole_number(scalar(n, what));
    if (!value || *value < 1 || *value > 100'000)
      fail(n, fmt::format("{} is \"{}\"; give a whole number from 1 to 100000", what, n.Scalar()));
    return static_cast<int>(*value);
  }

  fsdp::Nanos duration(const YAML::Node& n, const std::string& what) const {
    fsdp::Nanos t = 0;
    const std::string text = scalar(n, what);
    at(n, [&] { t = parse_nanos(text); });
    if (t <= 0) fail(n, fmt::format("{} is {}; give a time above 0, for instance 30s", what, text));
    return t;
  }

  void read_repeat(const YAML::Node& n) {
    read_map(n, "repeat",
             {{"min", [&](const YAML::Node& v) { spec_.repeat.min = count(v, "repeat min"); }},
              {"max", [&](const YAML::Node& v) { spec_.repeat.max = count(v, "repeat max"); }},
              {"relative_ci",
               [&](const YAML::Node& v) {
                 const std::string text = scalar(v, "repeat relative_ci");
                 at(v, [&] { spec_.repeat.relative_ci = parse_percent(text); });
                 said_relative_ci_ = true;
               }},
              {"time", [&](const YAML::Node& v) { spec_.repeat.time = duration(v, "repeat time"); }}});
    if (n["min"] && !n["max"]) spec_.repeat.max = std::max(spec_.repeat.min, spec_.repeat.max);
    if (n["max"] && !n["min"]) spec_.repeat.min = std::min(spec_.repeat.min, spec_.repeat.max);
    if (spec_.repeat.max < spec_.repeat.min) {
      fail(n, fmt::format("repeat max {} is below min {}; give a max of {} or more", spec_.repeat.max, spec_.repeat.min,
                          spec_.repeat.min));
    }
  }

  void read_interleave(const YAML::Node& n) {
    spec_.interleave = n.IsMap() || truth(n, "interleave");
    if (!n.IsMap()) return;
    read_map(
        n, "interleave",
        {{"repetitions", [&](const YAML::Node& v) { spec_.round.repetitions = count(v, "interleave repetitions"); }},
         {"time", [&](const YAML::Node& v) { spec_.round.time = duration(v, "interleave time"); }},
         {"pin", [&](const YAML::Node& v) { spec_.round.pin = truth(v, "interleave pin"); }}});
  }

  bool truth(const YAML::Node& n, const std::string& what) const {
    const std::string text = scalar(n, what);
    if (text != "true" && text != "false") fail(n, fmt::format("{} is \"{}\"; use true or false", what, text));
    return text == "true";
  }

  std::int64_t whole(const YAML::Node& n, const std::string& what) const {
    const auto value = whole_number(scalar(n, what));
    if (!value) fail(n, fmt::format("{} is \"{}\"; give a whole number", what, n.Scalar()));
    return *value;
  }

  void read_boundary(const YAML::Node& n) {
    BoundarySpec b;
    std::optional<std::int64_t> from, to;
    std::int64_t step = 1;
    std::optional<YAML::Node> values, start;
    read_map(n, "boundary",
             {{"setting", [&](const YAML::Node& v) { b.setting = scalar(v, "boundary setting"); }},
              {"from", [&](const YAML::Node& v) { from = whole(v, "boundary from"); }},
              {"to", [&](const YAML::Node& v) { to = whole(v, "boundary to"); }},
              {"step", [&](const YAML::Node& v) { step = whole(v, "boundary step"); }},
              {"values", [&](const YAML::Node& v) { values = v; }},
              {"start", [&](const YAML::Node& v) { start = v; }},
              {"check", [&](const YAML::Node& v) { b.check = static_cast<int>(whole(v, "boundary check")); }}});
    if (b.setting.empty()) fail(n, "boundary has no setting; name one, for instance setting: batch");
    if (b.check < 0 || b.check > 100) fail(n, fmt::format("boundary check is {}; give 0 to 100", b.check));
    for (const SweepSpec::Axis& axis : spec_.axes)
      if (axis.first == b.setting)
        fail(n, fmt::format("{} is an axis and the boundary's setting; keep one", b.setting));
    if (values.has_value() == (from && to))
      fail(n, "boundary takes either from and to, or a list of values in the order of growing memory");
    const std::vector<std::string> listed = values ? list_of(*values) : std::vector<std::string>();
    at(n, [&] {
      for (const std::string& v : values ? listed : boundary_range(*from, *to, step))
        b.values.push_back(boundary_value(b.setting, v, files_));
      if (start) b.start = boundary_value(b.setting, scalar(*start, "boundary start"), files_);
    });
    if (b.start && std::find(b.values.begin(), b.values.end(), *b.start) == b.values.end())
      fail(*start, fmt::format("boundary start {} is none of the values", *b.start));
    spec_.boundary = std::move(b);
  }

  std::vector<std::string> list_of(const YAML::Node& n) const {
    if (!n.IsSequence() || n.size() == 0 || n.size() > kMostBoundaryValues)
      fail(n, fmt::format("boundary values is {}; give a list of 1 to {} values", kind(n), kMostBoundaryValues));
    std::vector<std::string> out;
    for (const YAML::Node& v : n) {
      out.push_back(scalar(v, "a boundary value"));
      if (std::count(out.begin(), out.end(), out.back()) > 1)
        fail(v, fmt::format("boundary values hold {} twice; give it once", out.back()));
    }
    return out;
  }

  void read_trace(const YAML::Node& n) {
    const std::string text = scalar(n, "trace");
    if (text == "all") fail(n, "trace all is not in this version; use one or none");
    if (text != "one" && text != "none") fail(n, fmt::format("trace is \"{}\"; use one or none", text));
    spec_.trace = text == "one";
  }

  SweepSpec spec_;
  FileTexts files_;
  bool said_relative_ci_ = false;
  bool has_model_axis_ = false;
};

}  // namespace

SweepSpec parse_spec(const std::string& text, const std::string& file, FileTexts files) {
  return SpecReader(file, std::move(files)).read(text);
}

SweepSpec read_spec(const std::string& path, FileTexts files) {
  const std::string text = read_small_file(path, kLargestSpec, "a sweep spec in YAML");
  if (trim(text).empty())
    throw fsdp::ConfigError(fmt::format("[{}] is empty; give a sweep spec with base and axes", path));
  if (text.find('\0') != std::string::npos)
    throw fsdp::ConfigError(fmt::format("[{}] is not text; give a sweep spec in YAML", path));
  if (!fsdp::is_utf8(text))
    throw fsdp::ConfigError(fmt::format("[{}] is not UTF-8; save it so, and name files that it names so too", path));
  return parse_spec(text, path, std::move(files));
}

}  // namespace harness
