// Policies: the wrap policy of each case as Python to paste into PyTorch. Cases that differ in nothing that the policy
// holds share one text.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/store/records.h"

namespace reports {

class PolicyTable {
 public:
  // The place of the case's policy; std::nullopt where its settings make no plan (a foreign or damaged record, a model
  // file that is gone).
  std::optional<std::size_t> add(const harness::CaseRecord& c);

  // JSON [[FSDP2 code, FSDP1 code or why there is none], ...], deflated and in base64; empty without a policy.
  std::string packed() const;

 private:
  std::map<std::string, std::size_t> place_;  // JSON text -> place
  std::vector<std::string> texts_;
};

}  // namespace reports
