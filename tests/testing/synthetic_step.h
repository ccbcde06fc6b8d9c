// One step of one synthetic rank: lanes as time cursors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/span.h"

namespace testing_support {

struct SyntheticUnit {
  std::string name;
  std::int64_t parameters = 0;
};

struct SyntheticStep {
  std::vector<SyntheticUnit> units;  // forward order
  int rank = 0, ranks = 2, step = 0;
  bool prefetch_backward = true;
  int prefetch_forward = 1;
  bool reshard = true;             // false: the backward pass gathers nothing
  double ns_per_parameter = 0.05;  // forward compute
  double ns_per_byte = 0.4;        // the wire
  fsdp::Nanos latency = 200'000, launch = 20'000;
  double jitter = 1;  // factor on compute
};
std::vector<fsdp::Span> synthetic_spans(const SyntheticStep& s);

}  // namespace testing_support
