#include "harness/store/records.h"

namespace harness {

std::string_view name_of(Status s) {
  switch (s) {
    case Status::kOk:
      return "ok";
    case Status::kNearOom:
      return "near_oom";
    case Status::kOom:
      return "oom";
    case Status::kTimeout:
      return "timeout";
    case Status::kCrashed:
      return "crashed";
    case Status::kCommError:
      return "comm_error";
    case Status::kConfigError:
      return "config_error";
    case Status::kSkipped:
      return "skipped";
  }
  return "?";
}

std::optional<Status> status_from(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Status::kSkipped); ++i) {
    if (name == name_of(static_cast<Status>(i))) return static_cast<Status>(i);
  }
  return std::nullopt;
}

}  // namespace harness
