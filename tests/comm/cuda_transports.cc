#include "tests/comm/cuda_transports.h"

#include <new>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/core/clock.h"

namespace fsdp::testing {
namespace {

class DeviceTransport final : public Transport {
 public:
  explicit DeviceTransport(std::unique_ptr<CudaRank> rank) : rank_(std::move(rank)) {}
  int rank() const override { return rank_->collectives().rank(); }
  int world() const override { return rank_->collectives().world(); }

  Nanos run(const CollectiveCall& call) override {
    const Nanos arrival = steady_now();
    const auto bytes_in = sized(call.count * size_of(call.in_dtype), call.kind == CollectiveKind::kReduceScatter);
    const auto bytes_out = sized(call.count * size_of(call.out_dtype), call.kind == CollectiveKind::kAllGather);
    const auto* const host_in = static_cast<const std::byte*>(call.in);
    auto* const host_out = static_cast<std::byte*>(call.out);
    // An input inside the output stays inside it.
    const bool inside = host_in >= host_out && host_in < host_out + bytes_out && call.count > 0;
    const Bytes bytes_addend = call.addend != nullptr ? call.count * size_of(Dtype::kFloat32) : 0;
    Buffer out(*rank_, bytes_out), in(*rank_, inside ? 0 : bytes_in), addend(*rank_, bytes_addend);
    CollectiveCall on_device = call;
    on_device.out = out.p;
    on_device.in = inside ? static_cast<std::byte*>(out.p) + (host_in - host_out) : in.p;
    on_device.addend = static_cast<const float*>(addend.p);
    try {
      copy(addend.p, call.addend, bytes_addend);
      copy(out.p, call.out, bytes_out);
      if (!inside) copy(in.p, call.in, bytes_in);
      run_on_lane(on_device);
      copy(call.out, out.p, bytes_out);
      rank_->device().synchronize(rank_->device().record(Lane::kCompute));
    } catch (...) {
      rank_->cancel();  // the buffers go now
      throw;
    }
    return arrival;
  }
  std::vector<std::uint64_t> exchange(std::uint64_t value) override { return rank_->collectives().exchange(value); }
  void* allocate(Bytes n) override { return ::operator new (static_cast<std::size_t>(n), std::align_val_t{128}); }
  void release(void* p) noexcept override { ::operator delete (p, std::align_val_t{128}); }
  void abort(const std::string& reason) noexcept override { rank_->abort(reason); }

 private:
  struct Buffer {
    Buffer(CudaRank& rank, Bytes n) : rank(rank), p(rank.collectives().allocate(n)) {}
    ~Buffer() { rank.collectives().release(p); }
    CudaRank& rank;
    void* const p;
  };
  void run_on_lane(const CollectiveCall& call) {
    CudaDevice& device = rank_->device();
    const Lane lane = call.kind == CollectiveKind::kReduceScatter ? Lane::kReduceScatter
                      : call.kind == CollectiveKind::kAllGather   ? Lane::kAllGather
                                                                  : Lane::kAllReduce;
    device.wait(lane, device.record(Lane::kCompute));
    rank_->collectives().enqueue(lane, call);
    device.wait(Lane::kCompute, device.record(lane));
  }
  Bytes sized(Bytes n, bool whole) const { return whole ? n * world() : n; }
  void copy(void* to, const void* from, Bytes n) {
    CudaDevice& device = rank_->device();
    if (n > 0)
      check_cuda(device.runtime(),
                 device.runtime().copy(to, from, static_cast<std::size_t>(n), device.stream(Lane::kCompute)),
                 "cudaMemcpyAsync");
  }
  const std::unique_ptr<CudaRank> rank_;
};

}  // namespace

std::unique_ptr<Transport> as_transport(std::unique_ptr<CudaRank> rank) {
  return std::make_unique<DeviceTransport>(std::move(rank));
}

}  // namespace fsdp::testing
