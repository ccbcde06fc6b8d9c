#include "fsdp/module/flat_storage.h"

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

void swap_storage(const at::Tensor& t, std::size_t n) {
  c10::StorageImpl* s = t.storage().unsafeGetStorageImpl();
  s->set_data_ptr_noswap(s->allocator()->allocate(n));
  s->set_nbytes(n);
}
at::TensorOptions options_of(bool meta, Dtype dtype) {
  return at::TensorOptions().dtype(torch_dtype(dtype)).device(meta ? at::kMeta : at::kCPU);
}

}  // namespace

at::ScalarType torch_dtype(Dtype d) { return d == Dtype::kBFloat16 ? at::kBFloat16 : at::kFloat; }

void free_storage(const at::Tensor& t) { swap_storage(t, 0); }

void take_storage(const at::Tensor& t, Bytes n, MemoryCategory category) {
  const CategoryScope scope(category);
  swap_storage(t, static_cast<std::size_t>(n));
}

at::Tensor shared_tensor(Collectives& collectives, bool meta, Count n, MemoryCategory category, Dtype dtype) {
  if (meta) return own_tensor(true, n, category, dtype);
  const Bytes bytes = n * size_of(dtype);
  MemoryMeter* const meter = current_meter();
  count_block(meter, bytes, category);
  void* const memory = collectives.allocate(bytes);
  return at::from_blob(
      memory, {n},
      [&collectives, meter, bytes, category](void* p) {
        collectives.release(p);
        discount_block(meter, bytes, category);
      },
      options_of(false, dtype));
}

at::Tensor own_tensor(bool meta, Count n, MemoryCategory category, Dtype dtype) {
  const CategoryScope scope(category);
  return at::empty({n}, options_of(meta, dtype));
}

}  // namespace fsdp
