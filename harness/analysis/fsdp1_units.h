// PyTorch FSDP1 names no units in its annotations. Where Python stacks were recorded, the calls of modules around and
// inside its ranges do; else the order of the ranges tells them apart.
#pragma once
#include <string>
#include <vector>

#include "harness/analysis/annotations.h"

namespace harness {

// A forward range is of the module whose call is the outermost inside it ("Block_2": class and number as the profiler
// counts them; what only wraps a module for checkpointing or offloading is looked through). Without such a call, the
// n-th forward range to begin within one outermost forward is "unit n". The root has " (root)" behind its name.
// Backward mirrors forward: pre-backward hooks come in the reverse order of the forwards' ends, post-backward hooks in
// the reverse order of their begins. What a prefetch range issues is for the unit whose turn is next.
//
// Sets `unit` (and `pass` of prefetches) of the FSDP1 annotations, whose parents must be linked; `names` as
// Annotation::name says; `unit_names` grows by the units that are found.
void name_fsdp1_units(std::vector<Annotation>& annotations, const std::vector<std::string>& names,
                      std::vector<std::string>& unit_names);

}  // namespace harness
