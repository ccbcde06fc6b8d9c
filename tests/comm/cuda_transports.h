// Collectives of the CUDA world as transports, so that the conformance suite of the transports holds them too: bytes go
// to the device, the call runs on a lane, and bytes come back.
#pragma once
#include <functional>
#include <memory>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/transport.h"
#include "fsdp/device/cuda/cuda_device.h"

namespace fsdp::testing {

// A device and its collectives, of one rank.
class CudaRank {
 public:
  virtual ~CudaRank() = default;
  virtual CudaDevice& device() = 0;
  virtual Collectives& collectives() = 0;
  virtual void abort(const std::string& reason) = 0;
  virtual void cancel() = 0;
};

std::unique_ptr<Transport> as_transport(std::unique_ptr<CudaRank> rank);

}  // namespace fsdp::testing
