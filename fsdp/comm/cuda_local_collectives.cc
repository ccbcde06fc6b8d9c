#include "fsdp/comm/cuda_local_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "fsdp/comm/host_collectives.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

const void* address(std::uint64_t value) { return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(value)); }
CudaRuntime::EventHandle handle(std::uint64_t value) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(value));
}
std::uint64_t value_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
const void* at(const void* p, Bytes n) { return static_cast<const std::byte*>(p) + n; }
void* at(void* p, Bytes n) { return static_cast<std::byte*>(p) + n; }

}  // namespace

CudaMeeting::CudaMeeting(int ranks) : ranks_(ranks) {
  const auto bytes = static_cast<std::size_t>(LocalBoard::bytes_for(ranks));
  memory_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!memory_) throw EnvironmentError("[comm] no memory for a board of " + std::to_string(ranks) + " ranks");
  std::memset(memory_.get(), 0, bytes);
}
void CudaMeeting::Free::operator()(void* p) const { std::free(p); }

CudaMeeting::Events::Events(CudaRuntime& runtime)
    : ready{CudaEvent(runtime), CudaEvent(runtime)}, done{CudaEvent(runtime), CudaEvent(runtime)} {}

CudaMeeting::Events& CudaMeeting::make_events(CudaRuntime& runtime) {
  const std::lock_guard lock(mutex_);
  return events_.emplace_back(runtime);
}

CudaLocalCollectives::Party::Party(Communicator of, std::shared_ptr<CudaMeeting> where, CudaRuntime& runtime, int rank,
                                   std::vector<int> members, Nanos timeout)
    : communicator(of),
      meeting(std::move(where)),
      board(meeting->memory(), rank, std::move(members), timeout),
      events(meeting->make_events(runtime)) {}

CudaLocalCollectives::CudaLocalCollectives(CudaDevice& device, const CudaMeetings& meetings, int rank, Nanos timeout)
    : device_(device),
      rank_(rank),
      timeout_(timeout),
      exceptions_at_birth_(std::uncaught_exceptions()),
      compute_memory_(device, Lane::kCompute),
      gather_memory_(device, Lane::kAllGather) {
  SHARDSCOPE_CHECK(meetings.world != nullptr, "no meeting of all ranks");
  join({}, meetings.world, meetings.world->ranks());
  for (const auto& [communicator, meeting] : meetings.others) join(communicator, meeting, meetings.world->ranks());
  for (const Lane lane : {Lane::kAllGather, Lane::kReduceScatter, Lane::kAllReduce})
    scratch_[static_cast<std::size_t>(lane)] = std::make_unique<LaneScratch>(device, lane);
  full_ = std::make_unique<CudaBuffers>(device, gather_memory_);
}

CudaLocalCollectives::~CudaLocalCollectives() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_birth_;
  if (unwinding || device_.poisoned() || !device_.idle()) abort("it stopped in the middle of its work");
  device_.quiesce();
}

void CudaLocalCollectives::cancel() noexcept {
  device_.poison(std::make_exception_ptr(CommError("[comm] the collectives were cancelled; see the first error")));
  device_.quiesce();
}

void CudaLocalCollectives::join(Communicator c, const std::shared_ptr<CudaMeeting>& meeting, int world) {
  parties_.push_back(std::make_unique<Party>(c, meeting, device_.runtime(), c.place_of(rank_, world),
                                             c.members(rank_, world), timeout_));
}

CudaLocalCollectives::Party& CudaLocalCollectives::party(Communicator c) const {
  return *entry_of(parties_, c, [](const auto& p) { return p->communicator; });
}

void CudaLocalCollectives::enqueue(Lane lane, const CollectiveCall& call) {
  Party& p = party(call.communicator);
  device_.submit(lane, tag_of(call, p.board.world()), [&](CudaRuntime::Stream stream) {
    try {
      run(p, call, lane, stream);
    } catch (const std::exception& e) {
      abort(e.what());
      throw;
    }
  });
}

void CudaLocalCollectives::run(Party& p, const CollectiveCall& call, Lane lane, CudaRuntime::Stream stream) {
  CudaRuntime& runtime = device_.runtime();
  const std::size_t half = ++p.calls & 1;
  CallRecord& mine = p.board.begin_call();
  mine.kind = call.kind, mine.unit = call.unit, mine.count = call.count;
  mine.in_dtype = call.in_dtype, mine.out_dtype = call.out_dtype;
  mine.in = value_of(call.in), mine.value = value_of(p.events.ready[half].get()),
  mine.out = value_of(p.events.done[half].get());
  p.events.ready[half].record(stream);
  p.board.meet();
  const int ranks = p.board.world(), me = p.board.rank();
  std::vector<const void*> in;
  for (int r = 0; r < ranks; ++r) {
    in.push_back(address(p.board.record(r).in));
    check_cuda(runtime, runtime.stream_wait_event(stream, handle(p.board.record(r).value)), "cudaStreamWaitEvent");
  }
  // An all-reduce may write where the peers still read: its sum waits in the lane's scratch until they are done.
  const Bytes bytes = call.count * size_of(call.in_dtype);
  void* kept = nullptr;
  if (call.count > 0 && call.kind == CollectiveKind::kAllReduce) {
    kept = scratch_[static_cast<std::size_t>(lane)]->get(call.count * size_of(Dtype::kFloat32));
    sum(in, call, kept, Dtype::kFloat32, call.scale, false, stream);
  } else if (call.count > 0 && call.kind == CollectiveKind::kAllGather) {
    for (int r = 0; r < ranks; ++r) {
      void* const to = at(call.out, r * bytes);
      if (to != in[static_cast<std::size_t>(r)])
        check_cuda(runtime, runtime.copy(to, in[static_cast<std::size_t>(r)], static_cast<std::size_t>(bytes), stream),
                   "cudaMemcpyAsync");
    }
  } else if (call.count > 0 && call.kind == CollectiveKind::kReduceScatter) {
    for (const void*& piece : in) piece = at(piece, me * bytes);
    sum(in, call, call.out, call.out_dtype, call.scale, call.accumulate, stream);
  } else if (call.count > 0 && call.kind == CollectiveKind::kBroadcast && call.out != in[0]) {
    check_cuda(runtime, runtime.copy(call.out, in[0], static_cast<std::size_t>(bytes), stream), "cudaMemcpyAsync");
  }
  p.events.done[half].record(stream);
  p.board.meet_again();
  for (int r = 0; r < ranks; ++r)
    check_cuda(runtime, runtime.stream_wait_event(stream, handle(p.board.record(r).out)), "cudaStreamWaitEvent");
  if (kept == nullptr) return;
  CollectiveCall last = call;
  last.in_dtype = Dtype::kFloat32, last.addend = nullptr;
  sum({kept}, last, call.out, call.out_dtype, 1.0f, call.accumulate, stream);
}

void CudaLocalCollectives::sum(const std::vector<const void*>& in, const CollectiveCall& call, void* out,
                               Dtype out_dtype, float scale, bool accumulate, CudaRuntime::Stream stream) {
  SHARDSCOPE_CHECK(in.size() <= CudaRuntime::kMostInputs, std::to_string(in.size()) + " ranks on one GPU");
  CudaRuntime::Sum work;
  work.in = in.data(), work.inputs = static_cast<int>(in.size());
  work.in_dtype = call.in_dtype, work.out_dtype = out_dtype;
  work.out = out, work.count = call.count, work.scale = scale, work.accumulate = accumulate;
  work.addend = call.addend;
  check_cuda(device_.runtime(), device_.runtime().sum(work, stream), "sum kernel");
}

std::vector<std::uint64_t> CudaLocalCollectives::meet(Party& p, std::uint64_t value) {
  ++p.calls;
  CallRecord& mine = p.board.begin_call();
  mine.is_exchange = true, mine.value = value;
  p.board.meet();
  std::vector<std::uint64_t> values;
  for (int r = 0; r < p.board.world(); ++r) values.push_back(p.board.record(r).value);
  return values;
}

std::vector<std::uint64_t> CudaLocalCollectives::exchange(std::uint64_t value) {
  device_.drain();
  try {
    for (const auto& p : parties_)
      if (p->communicator.is_group()) meet(*p, value);
    return meet(*parties_.front(), value);
  } catch (const std::exception& e) {
    abort(e.what());
    throw;
  }
}

void* CudaLocalCollectives::allocate(Bytes n) { return n > 0 ? compute_memory_.allocate(n) : nullptr; }
void CudaLocalCollectives::release(void* p) noexcept {
  if (p != nullptr) compute_memory_.release(p);
}

void CudaLocalCollectives::abort(const std::string& reason) noexcept {
  for (const auto& p : parties_) p->board.abort(reason);
}

}  // namespace fsdp
