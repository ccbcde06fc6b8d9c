#include "fsdp/plan/prefetch_order.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "fsdp/core/errors.h"
#include "fsdp/plan/nearest.h"
#include "fsdp/plan/yaml_text.h"

namespace fsdp {
namespace {

struct Name {
  std::string text;
  int line;  // from 1
};

class Reader {
 public:
  Reader(const std::string& file, const UnitPlan& plan) : file_(file), plan_(plan) {}

  PrefetchOrder read(const std::string& text) const {
    const YAML::Node map = map_of(text);
    PrefetchOrder order;
    if (!map.IsDefined()) {
      order.forward = units(lines_of(text));
    } else {
      for (const auto& entry : map) {
        const std::string pass = entry.first.Scalar();
        if (pass != "forward" && pass != "backward")
          fail(entry.first.Mark().line + 1, "unknown key '" + pass + "'; allowed: forward, backward");
        (pass == "forward" ? order.forward : order.backward) = units(names_of(entry.second));
      }
    }
    if (order.forward.empty() && order.backward.empty())
      fail(1, "names no unit; give one unit a line, in the order in which forward runs them");
    if (order.backward.empty()) order.backward = reverse(order.forward);
    return order;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw ConfigError("[" + file_ + ":" + std::to_string(line) + "] " + what);
  }

  // Undefined: the text is a list of lines.
  YAML::Node map_of(const std::string& text) const {
    try {
      const YAML::Node root = load_yaml(text, file_);
      if (root.IsMap()) return root;
    } catch (const YAML::Exception&) {  // unit names may hold what YAML reads otherwise
    }
    return YAML::Node(YAML::NodeType::Undefined);
  }

  static std::vector<Name> lines_of(const std::string& text) {
    std::vector<Name> names;
    std::istringstream in(text);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      line.resize(std::min(line.find('#'), line.size()));
      const auto begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
      if (begin == std::string::npos) continue;
      std::string name = line.substr(begin, end - begin + 1);
      if (name.rfind("- ", 0) == 0) name = name.substr(std::min(name.find_first_not_of(" \t", 1), name.size()));
      names.push_back({name, number});
    }
    return names;
  }

  std::vector<Name> names_of(const YAML::Node& list) const {
    if (!list.IsSequence()) fail(list.Mark().line + 1, "a pass is a list of unit names; for example [root, lm_head]");
    std::vector<Name> names;
    for (const YAML::Node& item : list) {
      if (!item.IsScalar()) fail(item.Mark().line + 1, "a unit is one name; put names with brackets in quotes");
      names.push_back({item.Scalar(), item.Mark().line + 1});
    }
    return names;
  }

  std::vector<UnitId> units(const std::vector<Name>& names) const {
    std::vector<UnitId> order;
    for (const Name& n : names) {
      const auto it =
          std::find_if(plan_.units.begin(), plan_.units.end(), [&](const UnitSpec& u) { return u.name == n.text; });
      if (it == plan_.units.end()) {
        std::vector<std::string> known;
        for (const UnitSpec& u : plan_.units) known.push_back(u.name);
        fail(n.line, "no unit is named '" + n.text + "' (nearest: " + nearest_names(n.text, known) +
                         "); `shardscope plan` lists them");
      }
      const auto unit = static_cast<UnitId>(it - plan_.units.begin());
      if (std::find(order.begin(), order.end(), unit) != order.end())
        fail(n.line, "'" + n.text + "' stands twice; name each unit once a pass");
      order.push_back(unit);
    }
    return order;
  }

  std::vector<UnitId> reverse(const std::vector<UnitId>& forward) const {
    std::vector<UnitId> backward(forward.rbegin(), forward.rend());
    std::stable_partition(backward.begin(), backward.end(),
                          [&](UnitId u) { return plan_.units[static_cast<std::size_t>(u)].is_root; });
    return backward;
  }

  const std::string& file_;
  const UnitPlan& plan_;
};

}  // namespace

PrefetchOrder parse_prefetch_order(const std::string& text, const std::string& file_name, const UnitPlan& plan) {
  return Reader(file_name, plan).read(text);
}

}  // namespace fsdp
