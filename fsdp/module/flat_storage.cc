#include "fsdp/module/flat_storage.h"

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

void swap_storage(const at::Tensor& t, std::size_t n) {
  c10::StorageImpl* s = t.storage().unsafeGetStorageImpl();
  s->set_data_ptr_noswap(s->allocator()->allocate(n));
  s->set_nbytes(n);
}
at::TensorOptions options_of(bool meta, Dtype dtype) {
  return at::TensorOptions().dtype(torch_dtype(dtype)).device(tensor_device(meta));
}

// Memory that no allocator of ours has made, counted until it goes.
struct Counted {
  c10::DataPtr memory;
  MemoryMeter* meter;
  Bytes bytes;
  MemoryCategory category;
  static void release(void* self) {
    const std::unique_ptr<Counted> c(static_cast<Counted*>(self));
    discount_block(c->meter, c->bytes, c->category);
  }
};
c10::DataPtr counted(c10::DataPtr memory, Bytes n, MemoryCategory category) {
  MemoryMeter* const meter = current_meter();
  count_block(meter, n, category);
  void* const p = memory.get();
  const c10::Device device = memory.device();
  return {p, new Counted{std::move(memory), meter, n, category}, &Counted::release, device};
}

// The device knows how much is missing, the meter for what.
template <class F>
auto named(MemoryCategory category, F take) {
  try {
    return take();
  } catch (const OutOfMemory& e) {
    MemoryMeter* const meter = current_meter();
    if (!e.cause.empty() || meter == nullptr) throw;
    throw OutOfMemory(e.what(), meter->describe(meter->context(), category), e.requested, e.live, e.budget);
  }
}

}  // namespace

at::ScalarType torch_dtype(Dtype d) { return d == Dtype::kBFloat16 ? at::kBFloat16 : at::kFloat; }

void free_storage(const at::Tensor& t) { swap_storage(t, 0); }

void take_storage(const at::Tensor& t, Bytes n, MemoryCategory category, Lane writer) {
  if (TensorDevice* const device = t.is_meta() ? nullptr : current_tensor_device()) {
    c10::StorageImpl* s = t.storage().unsafeGetStorageImpl();
    s->set_data_ptr_noswap(counted(named(category, [&] { return device->take(n, writer); }), n, category));
    s->set_nbytes(static_cast<std::size_t>(n));
    return;
  }
  const CategoryScope scope(category);
  swap_storage(t, static_cast<std::size_t>(n));
}

at::Tensor shared_tensor(Collectives& collectives, bool meta, Count n, MemoryCategory category, Dtype dtype) {
  if (meta) return own_tensor(true, n, category, dtype);
  const Bytes bytes = n * size_of(dtype);
  MemoryMeter* const meter = current_meter();
  count_block(meter, bytes, category);
  void* const memory = named(category, [&] { return collectives.allocate(bytes); });
  return at::for_blob(memory, {n})
      .deleter([&collectives, meter, bytes, category](void* p) {
        collectives.release(p);
        discount_block(meter, bytes, category);
      })
      .options(options_of(false, dtype))
      .target_device(tensor_device(false))
      .make_tensor();
}

at::Tensor own_tensor(bool meta, Count n, MemoryCategory category, Dtype dtype) {
  const CategoryScope scope(category);
  if (meta || current_tensor_device() == nullptr || n == 0) return at::empty({n}, options_of(meta, dtype));
  const Bytes bytes = n * size_of(dtype);
  if (category == MemoryCategory::kUnsharded) {  // a lane fills it
    at::Tensor t = at::empty({0}, options_of(false, dtype));
    take_storage(t, bytes, category);
    t.unsafeGetTensorImpl()->set_sizes_contiguous({n});
    return t;
  }
  at::Tensor t = at::empty({n}, options_of(false, dtype));
  if (t.is_cpu()) return t;  // that allocator counts itself
  c10::StorageImpl* const s = t.storage().unsafeGetStorageImpl();
  s->set_data_ptr_noswap(counted(std::move(s->_mutable_data_ptr_no_checks()), bytes, category));
  return t;
}

}  // namespace fsdp
