#include "fsdp/module/tensor_device.h"

#include "fsdp/module/torch.h"

namespace fsdp {
namespace {
thread_local TensorDevice* current = nullptr;
}  // namespace

TensorDeviceScope::TensorDeviceScope(TensorDevice* device) : before_(current) { current = device; }
TensorDeviceScope::~TensorDeviceScope() { current = before_; }
TensorDevice* current_tensor_device() { return current; }

c10::Device tensor_device(bool meta) {
  if (meta) return at::kMeta;
  return current != nullptr ? current->place() : c10::Device(at::kCPU);
}

at::Tensor on_tensor_device(const at::Tensor& t) {
  const c10::Device device = tensor_device(false);
  return t.device() == device ? t : t.to(device);
}

LaneScope::LaneScope(Lane lane) {
  if (current != nullptr) guard_.reset_stream(current->stream(lane));
}

}  // namespace fsdp
