// TensorDevice says where the tensors of a rank live when that is neither host memory nor meta. The CUDA world's module
// implements it; the torch room asks it for devices, streams and memory, and so links nothing of CUDA. Each thread has
// a current one, as it has a MeterScope; a thread without one keeps its tensors in host memory.
//
// Streams: the kernels of the model run on the stream of the compute lane, and LibTorch's allocator takes memory for
// that stream. This is right for a buffer which the compute lane writes first and reads last, and also for one of
// another lane, if that lane waited for the compute lane before and the compute lane waits for it before the buffer is
// freed: reduce inputs, gradients, copies over smaller groups. Full parameters are filled by a lane that does not wait
// for the compute lane, so their memory comes from take().
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
