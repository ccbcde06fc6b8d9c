// cases_csv: results.csv. RFC 4180 (CRLF, quotes doubled), one row per case in the given order.
#pragma once
#include <string>
#include <vector>

#include "harness/store/records.h"

namespace reports {

// Columns: case, status, reason, the sweep's axes in its order, then the fixed columns from `units` to `predicted`.
// What a case does not have is an empty field. Integers are exact, other numbers read back exactly; flags are true,
// false. Texts are guarded.
std::string cases_csv(const harness::SweepRecord& sweep, const std::vector<harness::CaseRecord>& cases);

// One field, quoted when it holds a comma, a quote or a line break. Guards nothing.
std::string csv_field(const std::string& text);

// A text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a carriage return) gets an
// apostrophe in front, and so does one that begins with an apostrophe: a reader takes one away. Numbers get none.
std::string guarded_text(const std::string& text);

}  // namespace reports
