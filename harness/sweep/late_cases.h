// DIR/late: cases that were measured while another process held DIR/results.db for longer than a sweep waits. The next
// run of the sweep moves them to where they belong.
#pragma once
#include <string>

#include "harness/store/store.h"

namespace harness {

void keep_late(const std::string& directory, const CaseRecord& r);
// Into `store`, which is that of `directory`; cases that are there already stay as they are.
void move_late_cases(const std::string& directory, Store& store);

}  // namespace harness
