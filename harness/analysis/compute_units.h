// Which unit computes between FSDP's hooks. PyTorch brackets the hooks of a unit, not its compute: on one thread
// compute belongs to the unit whose pre-hook ended last and whose post-hook has not begun.
#pragma once
#include <cstdint>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

struct Annotation;

class ComputeUnits {
 public:
  ComputeUnits() = default;
  // By thread, then begin, units named.
  explicit ComputeUnits(const std::vector<Annotation>& annotations);

  struct Owner {
    fsdp::UnitId unit = fsdp::kNoUnit;
    fsdp::Pass pass = fsdp::Pass::kNone;
  };
  // Of compute launched at t on the thread; nobody if no hook says so.
  Owner at(std::uint32_t thread, fsdp::Nanos t) const;

 private:
  struct Change {
    std::uint32_t thread;
    fsdp::Nanos at;
    Owner owner;
  };
  std::vector<Change> changes_;  // by thread, then time
};

}  // namespace harness
