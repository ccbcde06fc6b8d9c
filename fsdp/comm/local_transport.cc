#include "fsdp/comm/local_transport.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>

#include "fsdp/comm/local_board.h"
#include "fsdp/comm/local_kernels.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

std::size_t bytes_of(Count count, Dtype dtype) { return static_cast<std::size_t>(count * size_of(dtype)); }

template <class T>
T* at_byte(T* p, std::size_t n) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(p) + n;
}

void copy(void* to, const void* from, std::size_t n) {
  if (to != from && n > 0) std::memcpy(to, from, n);
}

class LocalTransport final : public Transport {
 public:
  LocalTransport(void* board, std::shared_ptr<void> keep_board, std::shared_ptr<LocalMemory> memory, int rank,
                 std::vector<int> members, Nanos timeout)
      : keep_board_(std::move(keep_board)),
        memory_(std::move(memory)),
        board_(board, rank, std::move(members), timeout),
        sources_(static_cast<std::size_t>(board_.world())) {}
  ~LocalTransport() override {
    memory_->release(in_copy_.p);
    memory_->release(out_copy_.p);
  }

  int rank() const override { return board_.rank(); }
  int world() const override { return board_.world(); }

  Nanos run(const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;

  void* allocate(Bytes n) override { return memory_->allocate(n); }
  void release(void* p) noexcept override { memory_->release(p); }
  void check() override { board_.check(); }
  void abort(const std::string& reason) noexcept override { board_.abort(reason); }

 private:
  // Memory of the rank's own arena that grows and is kept.
  struct Copy {
    void* p = nullptr;
    std::size_t size = 0;
  };

  std::size_t input_bytes(const CollectiveCall& call) const;
  void check(const CollectiveCall& call) const;
  void* room(Copy& copy, std::size_t n);
  // Fills sources_: where each rank's input can be read, `offset` bytes in.
  const void* const* inputs(bool staged, std::size_t offset);
  const void* result_of(int rank) const { return memory_->resolve(board_.record(rank).out); }
  void publish(const CollectiveCall& call, bool staged, CallRecord& mine);

  void gather(const CollectiveCall& call, bool staged);
  void sum(const CollectiveCall& call, const void* const* in, void* out, Count count, bool accumulate);
  void all_reduce_by_segments(const CollectiveCall& call);

  const std::shared_ptr<void> keep_board_;
  const std::shared_ptr<LocalMemory> memory_;
  LocalBoard board_;
  Copy in_copy_, out_copy_;
  std::vector<const void*> sources_;
};

std::size_t LocalTransport::input_bytes(const CollectiveCall& call) const {
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return bytes_of(call.count, call.in_dtype);
    case CollectiveKind::kReduceScatter:
      return bytes_of(call.count, call.in_dtype) * static_cast<std::size_t>(world());
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

void LocalTransport::check(const CollectiveCall& call) const {
  if (call.kind == CollectiveKind::kBarrier || call.count == 0) return;
  const std::string what = std::string(name_of(call.kind)) + ", count " + std::to_string(call.count);
  const bool gives_input = call.kind != CollectiveKind::kBroadcast || rank() == 0;
  SHARDSCOPE_CHECK(call.count > 0 && call.out != nullptr && (call.in != nullptr || !gives_input), what);
  const bool moves_only = call.kind == CollectiveKind::kAllGather || call.kind == CollectiveKind::kBroadcast;
  SHARDSCOPE_CHECK(call.in_dtype == call.out_dtype || (!moves_only && call.in != call.out), what);
  SHARDSCOPE_CHECK(call.addend == nullptr || (call.kind == CollectiveKind::kReduceScatter && !call.accumulate), what);
  SHARDSCOPE_CHECK(call.kind != CollectiveKind::kAllReduce || !call.accumulate || call.in != call.out, what);
}

void* LocalTransport::room(Copy& copy, std::size_t n) {
  if (copy.size < n) {
    memory_->release(copy.p);
    copy = {};
    copy.p = memory_->allocate(static_cast<Bytes>(n));
    copy.size = n;
  }
  return copy.p;
}

void LocalTransport::publish(const CollectiveCall& call, bool staged, CallRecord& mine) {
  const std::size_t n = input_bytes(call);
  if (n == 0) return;
  const bool gives_input = call.kind != CollectiveKind::kBroadcast || rank() == 0;
  if (gives_input && staged) {
    std::memcpy(board_.own_stage(), call.in, n);
  } else if (gives_input) {
    std::optional<std::uint64_t> in = memory_->publish(call.in);
    if (!in) {
      void* copied = room(in_copy_, n);
      std::memcpy(copied, call.in, n);
      in = memory_->publish(copied);
    }
    mine.in = *in;
  }
  if (call.kind == CollectiveKind::kAllReduce && !staged && !call.accumulate) {
    std::optional<std::uint64_t> out = memory_->publish(call.out);
    if (!out) out = memory_->publish(room(out_copy_, bytes_of(call.count, call.out_dtype)));
    mine.out = *out;
  }
}

Nanos LocalTransport::run(const CollectiveCall& call) {
  check(call);
  CallRecord& mine = board_.begin_call();
  mine.kind = call.kind, mine.unit = call.unit, mine.count = call.count;
  mine.in_dtype = call.in_dtype, mine.out_dtype = call.out_dtype;
  const std::size_t n = input_bytes(call);
  const bool staged = n <= static_cast<std::size_t>(LocalBoard::kStageBytes);
  publish(call, staged, mine);
  const Nanos last_arrival = board_.meet();
  if (n == 0) return last_arrival;

  switch (call.kind) {
    case CollectiveKind::kAllGather:
      gather(call, staged);
      break;
    case CollectiveKind::kReduceScatter:
      sum(call, inputs(staged, static_cast<std::size_t>(rank()) * bytes_of(call.count, call.in_dtype)), call.out,
          call.count, call.accumulate);
      break;
    case CollectiveKind::kAllReduce:
      if (staged || call.accumulate) {
        sum(call, inputs(staged, 0), call.out, call.count, call.accumulate);
      } else {
        all_reduce_by_segments(call);
      }
      break;
    case CollectiveKind::kBroadcast:
      if (rank() != 0) copy(call.out, staged ? board_.stage(0) : memory_->resolve(board_.record(0).in), n);
      if (rank() == 0) copy(call.out, call.in, n);
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  if (!staged) board_.meet_again();  // nobody reads this rank's buffers any more
  return last_arrival;
}

std::vector<std::uint64_t> LocalTransport::exchange(std::uint64_t value) {
  CallRecord& mine = board_.begin_call();
  mine.is_exchange = true;
  mine.value = value;
  board_.meet();
  std::vector<std::uint64_t> values;
  for (int r = 0; r < world(); ++r) values.push_back(board_.record(r).value);
  return values;
}

const void* const* LocalTransport::inputs(bool staged, std::size_t offset) {
  for (int r = 0; r < world(); ++r) {
    const void* in = staged ? board_.stage(r) : memory_->resolve(board_.record(r).in);
    sources_[static_cast<std::size_t>(r)] = at_byte(in, offset);
  }
  return sources_.data();
}

void LocalTransport::gather(const CollectiveCall& call, bool staged) {
  const std::size_t piece = input_bytes(call);
  const void* const* from = inputs(staged, 0);
  copy(at_byte(call.out, static_cast<std::size_t>(rank()) * piece), call.in, piece);
  for (int k = 1; k < world(); ++k) {  // from the next rank on, so that ranks do not all read the same one
    const auto r = static_cast<std::size_t>((rank() + k) % world());
    copy(at_byte(call.out, r * piece), from[r], piece);
  }
}

void LocalTransport::sum(const CollectiveCall& call, const void* const* in, void* out, Count count, bool accumulate) {
  sum_ranks({in, world(), call.in_dtype, out, call.out_dtype, count, call.scale, accumulate, call.addend});
}

// Rank r sums segment r of everybody's input into its own result, then collects the other segments. In place this is
// safe: segment r of any input is read by rank r alone, and the rest of a result is written after the second meeting.
void LocalTransport::all_reduce_by_segments(const CollectiveCall& call) {
  const Count segment = ((call.count + world() - 1) / world() + 63) / 64 * 64;
  const auto begin_of = [&](int r) { return std::min(call.count, r * segment); };
  const auto length_of = [&](int r) { return std::min(call.count, (r + 1) * segment) - begin_of(r); };
  void* result = const_cast<void*>(result_of(rank()));
  sum(call, inputs(false, bytes_of(begin_of(rank()), call.in_dtype)),
      at_byte(result, bytes_of(begin_of(rank()), call.out_dtype)), length_of(rank()), false);
  board_.meet_again();
  for (int k = 0; k < world(); ++k) {
    const int r = (rank() + k) % world();
    const std::size_t at = bytes_of(begin_of(r), call.out_dtype);
    copy(at_byte(call.out, at), at_byte(result_of(r), at), bytes_of(length_of(r), call.out_dtype));
  }
}

std::vector<int> first_ranks(int world) {
  std::vector<int> members(static_cast<std::size_t>(world));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace

class ThreadBoard {
 public:
  explicit ThreadBoard(int world) : world_(world), size_(static_cast<std::size_t>(LocalBoard::bytes_for(world))) {
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      throw EnvironmentError("[comm] no memory for the board of " + std::to_string(world) + " ranks");
  }
  ~ThreadBoard() { munmap(memory_, size_); }
  ThreadBoard(const ThreadBoard&) = delete;
  ThreadBoard& operator=(const ThreadBoard&) = delete;
  int world() const { return world_; }
  void* memory() const { return memory_; }

 private:
  const int world_;
  const std::size_t size_;
  void* memory_ = nullptr;
};

std::shared_ptr<ThreadBoard> make_thread_board(int world) { return std::make_shared<ThreadBoard>(world); }

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadBoard> board, int rank, Nanos timeout) {
  std::vector<int> members = first_ranks(board->world());
  return make_local_transport(std::move(board), rank, std::move(members), timeout);
}

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadBoard> board, int rank, std::vector<int> members,
                                                Nanos timeout) {
  SHARDSCOPE_CHECK(static_cast<int>(members.size()) == board->world(), std::to_string(members.size()));
  void* memory = board->memory();
  return std::make_unique<LocalTransport>(memory, std::move(board), std::make_shared<ThreadMemory>(), rank,
                                          std::move(members), timeout);
}

int create_shared_memory(int world, Bytes arena_bytes) { return SharedMemory::create(world, arena_bytes); }

std::shared_ptr<SharedMemory> attach_shared_memory(int fd, int rank, int world) {
  return std::make_shared<SharedMemory>(fd, rank, world);
}

std::unique_ptr<Transport> attach_local_transport(std::shared_ptr<SharedMemory> memory, int rank, int world,
                                                  Nanos timeout, int channel) {
  return attach_local_transport(std::move(memory), rank, first_ranks(world), timeout, channel);
}

std::unique_ptr<Transport> attach_local_transport(std::shared_ptr<SharedMemory> memory, int group_rank,
                                                  std::vector<int> members, Nanos timeout, int channel) {
  SHARDSCOPE_CHECK(static_cast<int>(members.size()) <= memory->world(), std::to_string(members.size()));
  void* board = memory->board(channel);
  return std::make_unique<LocalTransport>(board, nullptr, std::move(memory), group_rank, std::move(members), timeout);
}

}  // namespace fsdp
