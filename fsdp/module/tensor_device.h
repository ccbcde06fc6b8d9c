// TensorDevice: where a rank's tensors live, if neither in host memory nor on meta. The CUDA world's module implements
// it; the torch room asks it for devices, streams and memory, and links nothing of CUDA. Current per thread, like a
// MeterScope: without one, tensors are the host's.
//
// Streams: the model's kernels run on the compute lane's stream, and memory of LibTorch's allocator belongs to it. That
// is right for every buffer whose first writer and last reader is the compute lane, or a lane that has waited for it
// and that it waits for before the buffer goes: reduce inputs, gradients, copies over smaller groups. Full parameters
// are filled by another lane, which does not wait for the compute lane: they come from take().
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include "fsdp/core/types.h"

namespace fsdp {

class TensorDevice {
 public:
  virtual ~TensorDevice() = default;
  virtual c10::Device place() const = 0;
  virtual c10::Stream stream(Lane lane) const = 0;
  // Memory that `writer` fills first and the compute lane reads last; it may be written again behind that. Throws
  // OutOfMemory.
  virtual c10::DataPtr take(Bytes n, Lane writer) = 0;
};

// The current thread's tensors live there while this lives; null: in host memory.
class TensorDeviceScope {
 public:
  explicit TensorDeviceScope(TensorDevice* device);
  ~TensorDeviceScope();
  TensorDeviceScope(const TensorDeviceScope&) = delete;
  TensorDeviceScope& operator=(const TensorDeviceScope&) = delete;

 private:
  TensorDevice* before_;
};
TensorDevice* current_tensor_device();

// Where new tensors go: meta, the current device, or host memory.
c10::Device tensor_device(bool meta);
// The tensor, copied there if it is elsewhere. Not for meta tensors.
at::Tensor on_tensor_device(const at::Tensor& t);

// Kernels that are launched while this lives go to the lane's stream. Nothing without a device.
class LaneScope {
 public:
  explicit LaneScope(Lane lane);

 private:
  c10::OptionalStreamGuard guard_;
};

}  // namespace fsdp
