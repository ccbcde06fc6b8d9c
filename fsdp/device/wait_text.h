// What a wait that took too long says, in every world.
#pragma once
#include <string>

#include "fsdp/core/errors.h"
#include "fsdp/device/device.h"

namespace fsdp {

// "[where] waited 60 s for all_gather of unit 3, forward; ..."
TimeoutError timed_out(const std::string& where, Nanos timeout, const WorkTag& tag);

}  // namespace fsdp
