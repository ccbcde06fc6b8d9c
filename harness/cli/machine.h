// What `doctor` looks at.
#pragma once
#include <string>
#include <vector>

namespace harness::cli {

struct Finding {
  enum class Kind { kGood, kAbsent, kWarning, kBroken };  // kBroken: the main job cannot run
  Kind kind = Kind::kGood;
  std::string name;    // "rank program"
  std::string value;   // what was found
  std::string remedy;  // what to do about it; empty when nothing is to be done
};

std::vector<Finding> examine_machine();
bool can_run(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace harness::cli
