// PyTorch FSDP1 names no units in its annotations; the order of its ranges tells them apart.
#pragma once
#include <string>
#include <vector>

#include "harness/analysis/annotations.h"

namespace harness {

// Within one outermost forward the n-th forward range to begin is "unit n" (0: the root). Backward mirrors it:
// pre-backward hooks come in the reverse order of the forwards' ends, post-backward hooks in the reverse order of their
// begins. What a prefetch range issues is for the unit whose turn is next. Sets `unit` (and `pass` of prefetches) of
// the FSDP1 annotations, whose parents must be linked; `unit_names` grows by "unit 0 (root)", "unit 1", ...
void name_fsdp1_units(std::vector<Annotation>& annotations, std::vector<std::string>& unit_names);

}  // namespace harness
