#include "fsdp/comm/nccl_collectives.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/seconds.h"

namespace fsdp {
namespace {

constexpr std::size_t kInFlight = 512;  // calls remembered: fewer than the device's ring of events

std::string version_text(int v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

// What ranks compare when a wait has failed, as three values of an exchange.
struct Packed {
  std::uint64_t what = 0, count = 0, number = 0;
};
constexpr std::uint64_t kExchange = 0xff;
Packed pack(const CallRecord& r) {
  const std::uint64_t kind = r.is_exchange ? kExchange : static_cast<std::uint64_t>(r.kind);
  return {static_cast<std::uint64_t>(static_cast<std::uint32_t>(r.unit)) << 32 |
              static_cast<std::uint64_t>(r.out_dtype) << 16 | static_cast<std::uint64_t>(r.in_dtype) << 8 | kind,
          static_cast<std::uint64_t>(r.count), r.number};
}
CallRecord unpack(const Packed& p) {
  CallRecord r;
  r.is_exchange = (p.what & 0xff) == kExchange;
  if (!r.is_exchange) r.kind = static_cast<CollectiveKind>(p.what & 0xff);
  r.in_dtype = static_cast<Dtype>(p.what >> 8 & 0xff);
  r.out_dtype = static_cast<Dtype>(p.what >> 16 & 0xff);
  r.unit = static_cast<UnitId>(p.what >> 32);
  r.count = static_cast<Count>(p.count);
  r.number = p.number;
  return r;
}

}  // namespace

std::string check_nccl_version(NcclLibrary& nccl) {
  int version = 0;
  if (const auto s = nccl.get_version(&version); s != NcclLibrary::kSuccess)
    throw EnvironmentError("[nccl] ncclGetVersion: " + nccl.error_text(s, nullptr) + "; is libnccl.so.2 intact?");
  if (version / 100 < nccl.header_version() / 100) {
    throw EnvironmentError("[nccl] NCCL " + version_text(version) + " is loaded, the build needs " +
                           version_text(nccl.header_version()) +
                           " or newer; put the NCCL of the torch wheel first in LD_LIBRARY_PATH");
  }
  return version_text(version);
}

// Memory that NCCL has allocated, registered with every communicator.
class NcclCollectives::Registered final : public CudaMemorySource {
 public:
  Registered(NcclLibrary& nccl, std::vector<NcclCommunicator*> communicators)
      : nccl_(nccl), communicators_(std::move(communicators)) {}
  void* allocate(Bytes n) override {
    void* p = nullptr;
    if (const auto s = nccl_.mem_alloc(&p, static_cast<std::size_t>(n)); s != NcclLibrary::kSuccess) {
      throw OutOfMemory("[memory] ncclMemAlloc of " + std::to_string(n) + " B: " + nccl_.error_text(s, nullptr), "", n,
                        0, 0);
    }
    Handles& handles = handles_[p];
    try {
      for (NcclCommunicator* c : communicators_) {
        void* handle = nullptr;
        c->settle(nccl_.comm_register(c->get(), p, static_cast<std::size_t>(n), &handle), "ncclCommRegister");
        handles.emplace_back(c, handle);
      }
    } catch (...) {
      release(p);
      throw;
    }
    return p;
  }
  void release(void* p) noexcept override {
    for (const auto& [c, handle] : handles_[p])
      if (c->get() != nullptr) nccl_.comm_deregister(c->get(), handle);  // else it went with the communicator
    handles_.erase(p);
    nccl_.mem_free(p);
  }

 private:
  using Handles = std::vector<std::pair<NcclCommunicator*, void*>>;
  NcclLibrary& nccl_;
  const std::vector<NcclCommunicator*> communicators_;
  std::unordered_map<void*, Handles> handles_;
};

NcclCollectives::NcclCollectives(CudaDevice& device, NcclLibrary& nccl, std::unique_ptr<Transport> control,
                                 const NcclOptions& options)
    : device_(device),
      nccl_(nccl),
      control_(std::move(control)),
      options_(options),
      exceptions_at_birth_(std::uncaught_exceptions()),
      compute_memory_(device, Lane::kCompute) {
  for (const Lane lane : {Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce})
    scratch_[static_cast<std::size_t>(lane)] = std::make_unique<LaneScratch>(device, lane);
  members_.push_back({{}, make_world()});
  for (const Communicator c : options.communicators) members_.push_front({c, split(c)});
  if (options.registered_buffers) {
    std::vector<NcclCommunicator*> all;
    for (const Member& m : members_) all.push_back(m.comm.get());
    source_ = std::make_unique<Registered>(nccl, std::move(all));
    flat_ = std::make_unique<CudaBuffers>(device, *source_);
  } else {
    source_ = std::make_unique<LaneMemory>(device, Lane::kAllGather);
  }
  full_ = std::make_unique<CudaBuffers>(device, *source_);
  device_.set_watcher(this);
}

NcclCollectives::~NcclCollectives() {
  device_.set_watcher(nullptr);
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
  const bool orderly = !unwinding && !device_.poisoned() && device_.idle();
  if (!orderly) {
    abort("it stopped in the middle of its work");
    cancel();
  }
  for (auto& s : scratch_) s.reset();
  full_.reset();
  flat_.reset();
  if (!orderly) return;
  for (const Member& m : members_) m.comm->close();
}

void NcclCollectives::cancel() noexcept {
  device_.poison(std::make_exception_ptr(CommError("[nccl] the collectives were cancelled; see the first error")));
  // Streams stand still behind a collective that will never end: aborting lets them go on.
  for (const Member& m : members_) m.comm->abort();
  device_.quiesce();
}

NcclCommunicator::Setup NcclCollectives::setup(const std::string& role) const {
  return {
      {"shardscope." + role, options_.min_ctas, options_.max_ctas}, options_.timeout, [this] { control_->check(); }};
}

// Rank 0 makes the id; the others get it as 32 floats that nobody looks at.
std::unique_ptr<NcclCommunicator> NcclCollectives::make_world() {
  NcclLibrary::UniqueId id{};
  try {
    check_nccl_version(nccl_);
    if (control_->rank() == 0) {
      if (const auto s = nccl_.get_unique_id(&id); s != NcclLibrary::kSuccess)
        throw CommError("[nccl] ncclGetUniqueId: " + nccl_.error_text(s, nullptr) + "; NCCL_DEBUG=INFO shows why");
    }
    CollectiveCall call;
    call.kind = CollectiveKind::kBroadcast;
    call.in = call.out = id.data();
    call.count = static_cast<Count>(id.size() / sizeof(float));
    control_->run(call);
    return std::make_unique<NcclCommunicator>(nccl_, id, NcclCommunicator::Place{control_->rank(), control_->world()},
                                              setup("world"));
  } catch (const std::exception& e) {
    control_->abort(e.what());
    throw;
  }
}

std::unique_ptr<NcclCommunicator> NcclCollectives::split(Communicator c) {
  try {
    const NcclCommunicator::Place place{c.place_of(rank(), world()), c.size(world())};
    return std::make_unique<NcclCommunicator>(*members_.back().comm, c.set_of(rank(), world()), rank(), place,
                                              setup(name_of(c)));
  } catch (const std::exception& e) {
    control_->abort(e.what());
    throw;
  }
}

NcclCollectives::Member& NcclCollectives::member(Communicator c) {
  return entry_of(members_, c, &Member::communicator);
}

void NcclCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  Member& with = member(call.communicator);
  CallRecord record;
  record.kind = call.kind, record.unit = call.unit, record.count = call.count;
  record.in_dtype = call.in_dtype, record.out_dtype = call.out_dtype;
  record.number = ++with.calls;
  device_.submit(lane, tag_of(call, with.comm->ranks()), [&](CudaRuntime::Stream stream) {
    try {
      run(*with.comm, call, lane, stream);
    } catch (const std::exception& e) {
      abort(e.what());
      throw;
    }
    in_flight_.push_back({device_.record(lane), record});
    if (in_flight_.size() > kInFlight) in_flight_.pop_front();
  });
}

void NcclCollectives::run(NcclCommunicator& comm, const CollectiveCall& call, Lane lane, CudaRuntime::Stream stream) {
  const auto n = static_cast<std::size_t>(call.count);
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      SHARDSCOPE_CHECK(call.in_dtype == call.out_dtype, "an all-gather converts nothing");
      if (n > 0)
        comm.settle(nccl_.all_gather(call.in, call.out, n, call.in_dtype, comm.get(), stream), "ncclAllGather");
      return;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      if (n > 0) reduce(comm, call, lane, stream);
      return;
    case CollectiveKind::kBroadcast:
      if (n > 0) comm.settle(nccl_.broadcast(call.in, call.out, n, call.in_dtype, comm.get(), stream), "ncclBroadcast");
      return;
    case CollectiveKind::kBarrier: {
      void* const one = scratch(lane).get(sizeof(float));
      comm.settle(nccl_.all_reduce(one, one, 1, Dtype::kFloat32, NcclLibrary::Op::kSum, comm.get(), stream),
                  "ncclAllReduce");
      return;
    }
  }
}

void NcclCollectives::reduce(NcclCommunicator& comm, const CollectiveCall& call, Lane lane,
                             CudaRuntime::Stream stream) {
  const bool average = comm.ranks() > 1 && call.scale == 1.0f / static_cast<float>(comm.ranks());
  const bool direct = call.in_dtype == call.out_dtype && !call.accumulate && call.addend == nullptr;
  void* const to = direct ? call.out : scratch(lane).get(call.count * size_of(call.in_dtype));
  const auto op = average ? NcclLibrary::Op::kAverage : NcclLibrary::Op::kSum;
  const auto n = static_cast<std::size_t>(call.count);
  if (call.kind == CollectiveKind::kReduceScatter) {
    comm.settle(nccl_.reduce_scatter(call.in, to, n, call.in_dtype, op, comm.get(), stream), "ncclReduceScatter");
  } else {
    comm.settle(nccl_.all_reduce(call.in, to, n, call.in_dtype, op, comm.get(), stream), "ncclAllReduce");
  }
  const float scale = average ? 1.0f : call.scale;
  if (!direct || scale != 1.0f) finish(call, to, scale, stream);
}

void NcclCollectives::finish(const CollectiveCall& call, const void* from, float scale, CudaRuntime::Stream stream) {
  CudaRuntime::Sum work;
  work.in = &from, work.inputs = 1;
  work.in_dtype = call.in_dtype, work.out_dtype = call.out_dtype;
  work.out = call.out, work.count = call.count;
  work.scale = scale, work.accumulate = call.accumulate, work.addend = call.addend;
  check_cuda(device_.runtime(), device_.runtime().sum(work, stream), "sum kernel");
}

void* NcclCollectives::allocate(Bytes n) {
  if (n == 0) return nullptr;
  if (!options_.registered_buffers) return compute_memory_.allocate(n);
  return flat_->take(n, Lane::kCompute);
}

void NcclCollectives::release(void* p) noexcept {
  if (p == nullptr) return;
  if (!options_.registered_buffers) return compute_memory_.release(p);
  flat_->give(p);
}

std::vector<std::uint64_t> NcclCollectives::exchange(std::uint64_t value) {
  device_.drain();
  CallRecord record;
  record.is_exchange = true;
  record.number = ++exchanges_;
  try {
    compare(record);
    return control_->exchange(value);
  } catch (const std::exception& e) {
    abort(e.what());
    throw;
  }
}

void NcclCollectives::compare(const CallRecord& mine) {
  const Packed packed = pack(mine);
  const auto what = control_->exchange(packed.what);
  const bool all_exchange =
      std::all_of(what.begin(), what.end(), [](std::uint64_t w) { return (w & 0xff) == kExchange; });
  if (all_exchange) return;
  const auto count = control_->exchange(packed.count), number = control_->exchange(packed.number);
  const CallRecord first = unpack({what[0], count[0], number[0]});
  for (std::size_t r = 1; r < what.size(); ++r) {
    const CallRecord other = unpack({what[r], count[r], number[r]});
    if (other.agrees_with(first)) continue;
    throw CommError("[nccl] ranks disagree: rank 0 is in " + first.describe() + ", rank " + std::to_string(r) +
                    " is in " + other.describe() + "; their plans, or the order in which they run modules, differ");
  }
}

void NcclCollectives::check() {
  try {
    control_->check();
    for (const Member& m : members_) m.comm->check();
  } catch (const std::exception& e) {
    abort(e.what());
    device_.poison(std::current_exception());
    throw;
  }
}

void NcclCollectives::timed_out(const WorkTag&) {
  const auto stuck = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [this](const InFlight& call) { return !device_.reached(call.done); });
  const std::string waited = "[nccl] rank " + std::to_string(rank()) + " waited " + seconds(options_.timeout);
  try {
    if (stuck == in_flight_.end())
      throw TimeoutError(waited + " for the GPU, with no collective in flight; a kernel hangs, or raise step_timeout");
    const std::string in = waited + " in " + stuck->record.describe();
    try {
      compare(stuck->record);
    } catch (const TimeoutError& e) {
      throw TimeoutError(in + "; asking its peers: " + e.what());
    }
    throw TimeoutError(in + ", as all ranks do; look at the network, or raise step_timeout");
  } catch (const std::exception& e) {
    abort(e.what());
    device_.poison(std::current_exception());
    throw;
  }
}

}  // namespace fsdp
