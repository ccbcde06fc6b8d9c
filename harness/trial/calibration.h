// Measures this machine's processor: operators over sizes inside real training steps, collectives over sizes through
// shared memory, what a wait costs. Torch room; no torch in this header.
#pragma once
#include <functional>
#include <string>

#include "harness/cost/hardware.h"

namespace harness {

// `quick`: fewer sizes and repetitions. `say` hears what is being measured. Takes seconds to a minute.
Hardware calibrate_host(bool quick, const std::function<void(const std::string&)>& say);

}  // namespace harness
