#include "fsdp/comm/cuda_emulated_collectives.h"

#include <algorithm>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/core/errors.h"

namespace fsdp {

CudaEmulatedCollectives::CudaEmulatedCollectives(CudaDevice& device, const Options& options)
    : device_(device),
      options_(options),
      compute_memory_(device, Lane::kCompute),
      gather_memory_(device, Lane::kAllGather),
      full_(std::make_unique<CudaBuffers>(device, gather_memory_)) {
  if (options.blocks < 1)
    throw ConfigError("[comm] " + std::to_string(options.blocks) + " thread blocks; an emulated call takes at least 1");
}

CudaEmulatedCollectives::~CudaEmulatedCollectives() { device_.quiesce(); }

void CudaEmulatedCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  const int ranks = group_size(call.communicator);
  auto at = std::find_if(last_.begin(), last_.end(), [&](const auto& l) { return l.first == call.communicator; });
  if (at == last_.end()) at = last_.insert(at, {call.communicator, {}});
  Event& last = at->second;
  if (!device_.poisoned()) device_.wait(lane, last);  // one communicator: issue order
  device_.submit(lane, tag_of(call, ranks), [&](CudaRuntime::Stream stream) { run(call, ranks, stream); });
  if (!device_.poisoned()) last = device_.record(lane);
}

void CudaEmulatedCollectives::run(const CollectiveCall& call, int ranks, CudaRuntime::Stream stream) {
  CudaRuntime& runtime = device_.runtime();
  const Bytes bytes = call.count * size_of(call.in_dtype);
  CudaRuntime::PacedCopy hold;
  hold.hold = wire_time(call, ranks, options_.wire);
  hold.blocks = options_.blocks;
  if (call.kind == CollectiveKind::kAllGather && bytes > 0)
    hold.from = call.in, hold.to = call.out, hold.bytes = bytes, hold.copies = ranks;
  check_cuda(runtime, runtime.paced_copy(hold, stream), "paced copy kernel");
  if (bytes == 0 || (call.kind != CollectiveKind::kReduceScatter && call.kind != CollectiveKind::kAllReduce)) return;
  CudaRuntime::Sum work;
  work.in = &call.in, work.inputs = 1;
  work.in_dtype = call.in_dtype, work.out_dtype = call.out_dtype;
  work.out = call.out, work.count = call.count, work.accumulate = call.accumulate;
  work.addend = call.addend;
  work.scale = call.scale * static_cast<float>(ranks);
  check_cuda(runtime, runtime.sum(work, stream), "sum kernel");
}

std::vector<std::uint64_t> CudaEmulatedCollectives::exchange(std::uint64_t value) {
  device_.drain();
  return {value};
}

void CudaEmulatedCollectives::release(void* p) noexcept {
  if (p != nullptr) compute_memory_.release(p);
}

}  // namespace fsdp
