// compare_html: one page for a comparison; opens from disk without a network. The same comparison, the same page.
#pragma once
#include <string>

#include "harness/advise/compare.h"

namespace reports {

// `c` is what harness::compare gave for the two sides with these options.
std::string compare_html(const harness::Comparison& c, const harness::Side& a, const harness::Side& b,
                         const harness::CompareOptions& options);

// The data of the page, as the page reads it.
std::string compare_json(const harness::Comparison& c, const harness::Side& a, const harness::Side& b,
                         const harness::CompareOptions& options);

}  // namespace reports
