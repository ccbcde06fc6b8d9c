// The NCCL that LibTorch brings.
#pragma once
#include <memory>

#include "fsdp/comm/nccl_library.h"

namespace fsdp {

std::unique_ptr<NcclLibrary> make_linked_nccl();

}  // namespace fsdp
