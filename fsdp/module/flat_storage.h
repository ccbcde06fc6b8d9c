// Flat buffers of a unit: memory from the transport wrapped as tensors, and tensors whose memory comes and goes.
#pragma once
#include <ATen/core/Tensor.h>

#include "fsdp/comm/collectives.h"
#include "fsdp/core/memory_meter.h"

namespace fsdp {

// Gives a tensor's memory back and takes it again without replacing the tensor. The storage object stays, so views and
// what autograd saved keep pointing at it; no version counter moves. `category` is what the memory counts as; `writer`
// the lane that fills it first, where that matters (tensor_device.h).
void free_storage(const at::Tensor& t);
void take_storage(const at::Tensor& t, Bytes n, MemoryCategory category, Lane writer = Lane::kAllGather);

at::ScalarType torch_dtype(Dtype d);

// `n` elements that peers can read, counted into the current meter until the tensor dies; not initialised.
// Without memory (the virtual world) a meta tensor that counts the same. Throws OutOfMemory.
at::Tensor shared_tensor(Collectives& collectives, bool meta, Count n, MemoryCategory category,
                         Dtype dtype = Dtype::kFloat32);
// The same in memory of this rank alone.
at::Tensor own_tensor(bool meta, Count n, MemoryCategory category, Dtype dtype = Dtype::kFloat32);

}  // namespace fsdp
