#include "harness/sweep/late_cases.h"

#include <algorithm>
#include <filesystem>

#include "fsdp/core/files.h"

namespace harness {
namespace {
constexpr const char* kLate = "late";
}

void keep_late(const std::string& directory, const CaseRecord& r) {
  Store::open_for_writing(fsdp::Folder::open(directory).inner(kLate).path()).write_case(r);
}

void move_late_cases(const std::string& directory, Store& store) {
  namespace fs = std::filesystem;
  const fs::path place = fs::path(directory) / kLate;
  if (!fs::is_directory(fs::symlink_status(place))) return;
  if (Store::exists(place.string())) {
    const std::vector<std::string> there = store.finished_ids();
    for (const CaseRecord& r : Store::open(place.string()).read_cases(Store::Detail::kAll))
      if (std::find(there.begin(), there.end(), r.id) == there.end()) store.write_case(r);
  }
  fs::remove_all(place);
}

}  // namespace harness
