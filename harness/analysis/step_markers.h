// Markers of steps. A program marks its steps in several ways at once: the profiler's own, ranges of the training
// script, of the optimizer ("step" around optimizer.step()). One kind says where steps begin; the others are no steps.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct Annotation;

// The kind of a step's text: "ProfilerStep#" of "ProfilerStep#12", "step" of "step 12" and "Step", "train step" of
// "train_step: 7"; empty if it marks no step.
std::string step_kind(std::string_view text);

// Chooses for each process: the profiler's own markers where they are there; else of the kinds that cover at least half
// of what the widest one covers, a numbered one before one without numbers, the wider before the narrower. Markers
// inside one of their own kind are doubles. Those not chosen lose their kind (AnnotationKind::kOther); `others` gets a
// sentence for each process that has some. `end` closes markers that were cut; `names` are indexed by Annotation::name.
void choose_steps(std::vector<Annotation>& annotations, const std::vector<std::string>& names, fsdp::Nanos end,
                  std::vector<std::string>& others);

}  // namespace harness
