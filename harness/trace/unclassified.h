// What a trace made elsewhere holds and the analysis does not understand. "Clean" is earned: what is not classified is
// named with its share of the time, and above 1 % the outcome is partial.
#pragma once
#include <string>
#include <vector>

#include "harness/analysis/foreign_partition.h"
#include "harness/trace/foreign_trace.h"

namespace harness {

struct Unclassified {
  // "kernel_name", "collective_range", "launch_without_kernel", "process_without_kernels", "category", "table"
  std::string kind;
  std::string text;  // a sentence
  std::int64_t count = 0;
  fsdp::Nanos ns = 0;
  double pct = 0;        // of the time: `ns` of the length of the steps that count
  bool matters = false;  // the outcome is not clean
};

// Of one device: kernels by name, collected while its operations pass.
class UnclassifiedKernels {
 public:
  void add(const DeviceOp& op);
  // `length` is what shares are of.
  void append(const ForeignTrace& trace, fsdp::Nanos length, std::vector<Unclassified>& out) const;

 private:
  struct Sum {
    std::int64_t count = 0;
    fsdp::Nanos ns = 0;
  };
  std::map<std::uint32_t, Sum> by_name_;
};

// Of one device: ranges of collectives without one, launch calls without a kernel. `total` are the steps that count.
std::vector<Unclassified> unclassified_of_row(const ForeignTrace& trace, std::size_t row, const ForeignStep& total);

// Of the file: categories, tables, processes. `length`: of the whole trace, 0 if it has no device activity.
std::vector<Unclassified> unclassified_of_file(const ForeignTrace& trace, fsdp::Nanos length);

}  // namespace harness
