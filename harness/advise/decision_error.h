// How sure a prediction is of a choice: by kind of decision, the error of predicted effects beside measured ones. A
// difference below it is none.
#pragma once
#include "harness/store/records.h"

namespace harness {

// Of the ratio of two cases' step times; 0 unless both are predicted. Kinds of decisions that differ add in quadrature.
double decision_error(const CaseRecord& a, const CaseRecord& b);

// PyTorch's: a unit for each block, resharded, gathered before it is needed in backward.
bool is_default_policy(const CaseRecord& c);

}  // namespace harness
