// Progress of a sweep on standard error. On a terminal one line is written over and over below the finished cases; in a
// log file there is one line per case and no control characters.
#pragma once
#include <string>

#include "harness/sweep/runner.h"

namespace harness::cli {

class ProgressLine {
 public:
  ProgressLine();  // looks whether standard error is a terminal, and how wide
  ~ProgressLine();
  void begin_case(const SweepProgress& p, const SweepCase& c);
  void end_case(const SweepProgress& p, const SweepCase& c, const CaseRecord& r);

 private:
  void clear();
  bool terminal_ = false;
  std::size_t width_ = 80;
  bool shown_ = false;
};

// "[ 5/12] wrap=block, backward_prefetch=pre   ok   12.41 ms   94.50 MiB"
std::string finished_line(const SweepProgress& p, const SweepCase& c, const CaseRecord& r);
// "[ 5/12] wrap=root ...   4 ok, 1 oom   about 2 min left"
std::string running_line(const SweepProgress& p, const SweepCase& c);
// "9 ok, 2 oom, 1 crashed"
std::string counts_text(const SweepProgress& p);

}  // namespace harness::cli
