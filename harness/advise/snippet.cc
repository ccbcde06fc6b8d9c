// What both snippets share: names, listings, the header.
#include "harness/advise/snippet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fsdp/core/escape.h"
#include "fsdp/plan/wrap_policy.h"

namespace harness {

Policy policy_of(const CaseSettings& settings) {
  Policy p{settings, describe_model(model_of(settings)), {}};
  p.plan = fsdp::make_unit_plan(p.tree, settings.wrap.policy, settings.unit);
  return p;
}

std::optional<std::string> fsdp1_obstacle(const Policy& policy) {
  for (const fsdp::UnitSpec& unit : policy.plan.units) {
    if (!unit.is_root && unit.modules.size() > 1)
      return fmt::format("unit {} holds {} modules, and FSDP1 wraps one module at a time", unit.name,
                         unit.modules.size());
  }
  return std::nullopt;
}

namespace snippet_detail {
namespace {

constexpr std::size_t kLongestPeriod = 4;
constexpr std::size_t kLeastRepeats = 3;
constexpr std::size_t kMostDigits = 9;  // of a number that is counted on

// A comment of one line.
std::string python_line(const std::string& text) { return fsdp::python_comment(fsdp::one_line(text)); }

// A unit's names with their whole-number components relative to the first one.
struct Template {
  std::vector<std::string> names;  // f-string bodies
  std::string options;
  long base = -1;  // the first number; -1: none, cannot repeat
  bool same_shape(const Template& o) const {
    return names == o.names && options == o.options && base >= 0 && o.base >= 0;
  }
};

Template template_of(const ListedUnit& unit) {
  Template t;
  t.options = unit.options;
  for (const std::string& name : unit.names) {
    std::string out;
    bool replaced = false;
    for (std::size_t from = 0; from <= name.size();) {
      const std::size_t dot = std::min(name.find('.', from), name.size());
      const std::string part = name.substr(from, dot - from);
      if (!out.empty()) out += ".";
      const bool number =
          !part.empty() && part.size() <= kMostDigits && part.find_first_not_of("0123456789") == std::string::npos;
      if (number && !replaced) {
        const long n = std::stol(part);
        if (t.base < 0) t.base = n;
        out += n == t.base ? "{i}" : fmt::format("{{i + {}}}", n - t.base);
        replaced = true;
      } else {
        out += fsdp::python_format_text(part);
      }
      from = dot + 1;
    }
    if (!replaced) t.base = -1;
    t.names.push_back(out);
  }
  return t;
}

std::string name_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + fsdp::python_string(n);
  return "[" + out + "]";
}

// Of bodies of f-strings.
std::string pattern_list(const std::vector<std::string>& patterns) {
  std::string out;
  for (const std::string& p : patterns) out += (out.empty() ? "f\"" : ", f\"") + p + "\"";
  return "[" + out + "]";
}

struct Repeat {
  std::size_t period = 1, count = 1;
  long stride = 1;
};

Repeat repeat_at(const std::vector<Template>& t, std::size_t at) {
  Repeat best;
  for (std::size_t p = 1; p <= kLongestPeriod && at + 2 * p <= t.size(); ++p) {
    const auto one_base = [&](std::size_t from) {
      return std::all_of(t.begin() + static_cast<long>(from), t.begin() + static_cast<long>(from + p),
                         [&](const Template& x) { return x.base == t[from].base; });
    };
    const long stride = t[at + p].base - t[at].base;
    if (t[at].base < 0 || stride < 1 || !one_base(at)) continue;
    std::size_t count = 1;
    for (std::size_t next = at + p; next + p <= t.size(); next += p, ++count) {
      bool same = one_base(next) && t[next].base == t[at].base + static_cast<long>(count) * stride;
      for (std::size_t k = 0; k < p; ++k) same = same && t[at + k].same_shape(t[next + k]);
      if (!same) break;
    }
    if (count >= kLeastRepeats && p * count > best.period * best.count) best = {p, count, stride};
  }
  return best;
}

}  // namespace

std::vector<std::string> list_units(const std::vector<ListedUnit>& units) {
  std::vector<Template> t;
  for (const ListedUnit& u : units) t.push_back(template_of(u));
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < units.size();) {
    const Repeat r = repeat_at(t, at);
    if (r.count == 1) {
      lines.push_back(fmt::format("({}, {}),", name_list(units[at].names), units[at].options));
      ++at;
      continue;
    }
    const long base = t[at].base, end = base + static_cast<long>(r.count) * r.stride;
    const std::string range =
        r.stride == 1 ? fmt::format("range({}, {})", base, end) : fmt::format("range({}, {}, {})", base, end, r.stride);
    if (r.period == 1) {
      lines.push_back(fmt::format("*(({}, {}) for i in {}),", pattern_list(t[at].names), t[at].options, range));
    } else {
      lines.push_back(fmt::format("*(unit for i in {} for unit in [", range));
      for (std::size_t k = 0; k < r.period; ++k)
        lines.push_back(fmt::format("    ({}, {}),", pattern_list(t[at + k].names), t[at + k].options));
      lines.push_back("]),");
    }
    at += r.period * r.count;
  }
  return lines;
}

std::string reshard_text(const fsdp::UnitSpec& unit) {
  if (unit.options.reshard_group > 1) return std::to_string(unit.options.reshard_group);
  return fsdp::reshards_after_forward(unit) ? "True" : "False";
}

std::vector<const fsdp::UnitSpec*> units_without_root(const fsdp::UnitPlan& plan) {
  std::vector<const fsdp::UnitSpec*> out;
  for (const fsdp::UnitSpec& u : plan.units)
    if (!u.is_root) out.push_back(&u);
  return out;
}

const fsdp::UnitSpec* root_unit(const fsdp::UnitPlan& plan) {
  for (const fsdp::UnitSpec& u : plan.units)
    if (u.is_root) return &u;
  return nullptr;
}

std::vector<std::string> module_names(const Policy& policy, const fsdp::UnitSpec& unit) {
  std::vector<std::string> names;
  for (const fsdp::ModuleId m : unit.modules) names.push_back(policy.tree.modules[static_cast<std::size_t>(m)].path);
  return names;
}

fsdp::UnitOptions root_options(const Policy& policy) {
  const fsdp::UnitSpec* root = root_unit(policy.plan);
  return root ? root->options : policy.settings.unit;
}

std::string torch_dtype(fsdp::Dtype d) { return d == fsdp::Dtype::kBFloat16 ? "torch.bfloat16" : "torch.float32"; }

namespace {

// transformers 4.x to 5.13: embed_out; from 5.14: lm_head. All other names of the families here have stayed
// (4.51, 5.24).
constexpr const char* kRenamed = "embed_out";

bool names_renamed(const Policy& policy) {
  const auto& units = policy.plan.units;
  return std::any_of(units.begin(), units.end(), [&](const fsdp::UnitSpec& unit) {
    const std::vector<std::string> names = module_names(policy, unit);
    return std::find(names.begin(), names.end(), kRenamed) != names.end();
  });
}

}  // namespace

std::string name_finder(const Policy& policy) {
  if (!names_renamed(policy)) return "";
  return "def module_of(model, name):\n"
         "    \"\"\"By its name; the head, which transformers calls lm_head since 5.14, by what it is.\"\"\"\n"
         "    if name == \"embed_out\" and not hasattr(model, name):\n"
         "        return model.get_output_embeddings()\n"
         "    return model.get_submodule(name)\n\n\n";
}

std::string get_module(const Policy& policy) {
  return names_renamed(policy) ? "module_of(model, name)" : "model.get_submodule(name)";
}

std::string header(const Policy& policy, const std::string& what, const std::vector<std::string>& notes) {
  const CaseSettings& c = policy.settings;
  const std::string of_model = model_name(c.model.text) + (c.set.empty() ? "" : " (" + overrides_text(c.set) + ")");
  std::string out = python_line(fmt::format("{} found by shardscope: case {}", what, case_id(c))) +
                    python_line(fmt::format("model {}, {} ranks, wrap {}, strategy {}: {} units", of_model, c.world,
                                            c.wrap.text, setting_text(c, "strategy"), policy.plan.units.size()));
  for (const std::string& n : notes) out += python_line("Note: " + n);
  return out;
}

std::vector<std::string> checkpoint_lines(const Policy& policy) {
  if (policy.settings.checkpoint != Checkpoint::kBlock) return {};
  std::vector<ListedUnit> blocks;
  for (const fsdp::ModuleInfo& m : policy.tree.modules)
    if (m.is_block) blocks.push_back({{m.path}, "None"});
  std::vector<std::string> lines = {"blocks = ["};
  for (const std::string& l : list_units(blocks)) lines.push_back("    " + l);
  lines.insert(lines.end(), {"]", "chosen = {model.get_submodule(name) for names, _ in blocks for name in names}",
                             "apply_activation_checkpointing(model, check_fn=lambda module: module in chosen)"});
  return lines;
}

}  // namespace snippet_detail
}  // namespace harness
