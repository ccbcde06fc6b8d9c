#include "harness/cli/result_files.h"

#include "harness/store/store.h"

namespace harness::cli {

reports::ReportInput read_results(const std::string& directory) {
  Store store = Store::open(directory);
  reports::ReportInput input;
  input.sweep = store.read_sweep();
  input.cases = store.read_cases(Store::Detail::kAll);
  return input;
}

}  // namespace harness::cli
