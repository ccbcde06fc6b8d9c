// The NCCL half of FakeCuda: communicators over the fake's streams.
#include <cstring>
#include <functional>

#include "fsdp/comm/local_kernels.h"
#include "tests/testing/fake_cuda_state.h"

namespace fsdp::testing {
namespace {

float get(const void* p, Dtype d, Count i) {
  return d == Dtype::kFloat32 ? static_cast<const float*>(p)[i]
                              : bfloat16_to_float(static_cast<const std::uint16_t*>(p)[i]);
}
void put(void* p, Dtype d, Count i, float v) {
  if (d == Dtype::kFloat32)
    static_cast<float*>(p)[i] = v;
  else
    static_cast<std::uint16_t*>(p)[i] = float_to_bfloat16(v);
}

}  // namespace

std::shared_ptr<FakeComm> FakeCuda::State::comm(NcclLibrary::Comm c, const char* call) {
  const auto found = comms.find(c);
  if (found != comms.end()) return found->second;
  fault(std::string(call) + " of a communicator that does not exist");
  return nullptr;
}

class FakeNccl final : public NcclLibrary {
 public:
  FakeNccl(FakeCuda::State& s, int rank) : s_(s), rank_(rank) {}

  int header_version() const override { return 22809; }
  Status get_version(int* version) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclGetVersion")) return kFailed;
    *version = s_.nccl_version;
    return kSuccess;
  }
  Status get_unique_id(UniqueId* id) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclGetUniqueId")) return kFailed;
    id->fill('\0');
    const std::string text = "fake id " + std::to_string(++s_.ids);
    std::copy(text.begin(), text.end(), id->begin());
    return kSuccess;
  }
  Status comm_init(Comm* comm, int ranks, const UniqueId& id, int rank, const Config& config) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclCommInitRankConfig")) return kFailed;
    auto& group = s_.groups_by_id[std::string(id.data())];
    if (!group) group = std::make_shared<FakeGroup>();
    if (group->ranks != 0 && group->ranks != ranks) s_.fault("ncclCommInitRankConfig with unlike numbers of ranks");
    group->ranks = ranks;
    if (!group->joined.insert(rank).second) s_.fault("two ranks of a communicator have the same number");
    if (rank_ == 0) s_.configs.push_back(config);
    auto c = std::make_shared<FakeComm>();
    c->group = group, c->rank = rank, c->device_rank = rank_;
    *comm = add(c);
    return kInProgress;
  }
  Status comm_split(Comm parent, int color, int key, Comm* comm, const Config& config) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclCommSplit")) return kFailed;
    const auto p = s_.comm(parent, "ncclCommSplit");
    if (p == nullptr || !ready(*p)) return kInvalidUsage;
    const std::uint64_t number = ++p->group->splits[p->rank];
    p->group->split_board[number].places[p->rank] = {color, key};
    if (rank_ == 0) s_.configs.push_back(config);
    auto c = std::make_shared<FakeComm>();
    c->parent = p->group, c->split = number, c->place = p->rank, c->device_rank = rank_;
    *comm = add(c);
    return kInProgress;
  }
  Status comm_async_error(Comm comm, Status* state) override {
    const Locked lock(s_.mutex);
    const auto c = s_.comm(comm, "ncclCommGetAsyncError");
    if (c == nullptr) return kFailed;
    *state = ready(*c) ? kSuccess : kInProgress;
    if (*state == kSuccess && s_.injected(rank_, "ncclCommGetAsyncError")) return kFailed;
    return kSuccess;
  }
  Status comm_finalize(Comm comm) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclCommFinalize")) return kFailed;
    return s_.comm(comm, "ncclCommFinalize") != nullptr ? kInProgress : kFailed;
  }
  Status comm_destroy(Comm comm) override { return end(comm, "ncclCommDestroy"); }
  Status comm_abort(Comm comm) override { return end(comm, "ncclCommAbort"); }
  Status comm_register(Comm comm, void* memory, std::size_t bytes, void** handle) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclCommRegister")) return kFailed;
    FakeBlock* const block = s_.block_of(memory);
    if (s_.comm(comm, "ncclCommRegister") == nullptr || block == nullptr || block->memory.size() < bytes) {
      s_.fault("ncclCommRegister of memory that is not there");
      return kInvalidUsage;
    }
    *handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(++s_.ids));
    s_.registrations[*handle] = {memory, comm};
    return kSuccess;
  }
  Status comm_deregister(Comm comm, void* handle) override {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, "ncclCommDeregister");
    s_.comm(comm, "ncclCommDeregister");
    if (s_.registrations.erase(handle) == 0) s_.fault("ncclCommDeregister of what is not registered");
    return failed ? kFailed : kSuccess;
  }
  Status mem_alloc(void** memory, std::size_t bytes) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "ncclMemAlloc")) return kFailed;
    *memory = s_.add_block(rank_, bytes, nullptr);
    return kSuccess;
  }
  Status mem_free(void* memory) override {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, "ncclMemFree");
    for (const auto& [handle, r] : s_.registrations) {
      if (r.memory == memory) s_.fault("ncclMemFree of memory that is registered");
    }
    s_.give_back(rank_, memory, nullptr, "ncclMemFree");
    return failed ? kFailed : kSuccess;
  }

  Status all_gather(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) override {
    const Bytes piece = static_cast<Bytes>(count) * size_of(d);
    return call(
        "ncclAllGather", count, d, Op::kSum, comm, stream, in, piece, out, Scaling::kGroupOut, [piece](FakeCall& c) {
          for (auto& [r, part] : c.parts) {
            for (auto& [from, other] : c.parts) {
              std::memmove(static_cast<std::byte*>(part.out) + from * piece, other.in, static_cast<std::size_t>(piece));
            }
          }
        });
  }
  Status reduce_scatter(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm,
                        Stream stream) override {
    const auto n = static_cast<Count>(count);
    return call("ncclReduceScatter", count, d, op, comm, stream, in, n * size_of(d), out, Scaling::kGroupIn,
                [n, d, op](FakeCall& c) {
                  for (auto& [r, part] : c.parts) reduce(c, d, op, r * n, n, part.out);
                });
  }
  Status all_reduce(const void* in, void* out, std::size_t count, Dtype d, Op op, Comm comm, Stream stream) override {
    const auto n = static_cast<Count>(count);
    return call("ncclAllReduce", count, d, op, comm, stream, in, n * size_of(d), out, Scaling::kSame,
                [n, d, op](FakeCall& c) {
                  std::vector<std::byte> result(static_cast<std::size_t>(n * size_of(d)));
                  reduce(c, d, op, 0, n, result.data());
                  for (auto& [r, part] : c.parts) std::memcpy(part.out, result.data(), result.size());
                });
  }
  Status broadcast(const void* in, void* out, std::size_t count, Dtype d, Comm comm, Stream stream) override {
    const Bytes bytes = static_cast<Bytes>(count) * size_of(d);
    return call("ncclBroadcast", count, d, Op::kSum, comm, stream, in, bytes, out, Scaling::kSame,
                [bytes](FakeCall& c) {
                  for (auto& [r, part] : c.parts)
                    std::memmove(part.out, c.parts.at(0).in, static_cast<std::size_t>(bytes));
                });
  }
  std::string error_text(Status status, Comm) const override {
    return status == kFailed ? "unhandled cuda error" : "ncclResult " + std::to_string(status);
  }

 private:
  using Locked = std::lock_guard<std::mutex>;
  static constexpr Status kFailed = 1;                // ncclUnhandledCudaError
  enum class Scaling { kSame, kGroupOut, kGroupIn };  // which side is as large as the group

  Comm add(const std::shared_ptr<FakeComm>& c) {
    s_.comms.emplace(c.get(), c);
    return c.get();
  }
  Status end(Comm comm, const char* name) {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, name);
    if (const auto c = s_.comm(comm, name)) {
      c->aborted = true;
      s_.comms.erase(comm);
      std::erase_if(s_.registrations, [comm](const auto& r) { return r.second.comm == comm; });
    }
    return failed ? kFailed : kSuccess;
  }

  static bool ready(FakeComm& c) {
    if (c.parent) {
      FakeGroup::Split& split = c.parent->split_board[c.split];
      if (split.places.size() < static_cast<std::size_t>(c.parent->ranks)) return false;
      const auto [color, key] = split.places.at(c.place);
      auto& group = split.groups[color];
      if (!group) group = std::make_shared<FakeGroup>();
      c.rank = group->ranks = 0;
      for (const auto& [r, place] : split.places) {
        if (place.first != color) continue;
        ++group->ranks;
        group->joined.insert(group->ranks - 1);
        if (place.second < key || (place.second == key && r < c.place)) ++c.rank;
      }
      c.group = group;
      c.parent.reset();
    }
    return c.group->joined.size() == static_cast<std::size_t>(c.group->ranks);
  }

  static void reduce(FakeCall& c, Dtype d, Op op, Count first, Count n, void* out) {
    const auto ranks = static_cast<float>(c.parts.size());
    for (Count i = 0; i < n; ++i) {
      float sum = get(c.parts.begin()->second.in, d, first + i);
      for (auto p = std::next(c.parts.begin()); p != c.parts.end(); ++p) sum += get(p->second.in, d, first + i);
      put(out, d, i, op == Op::kAverage ? sum * (1.0f / ranks) : sum);
    }
  }

  Status call(const char* name, std::size_t count, Dtype d, Op op, Comm comm, Stream stream, const void* in,
              Bytes bytes, void* out, Scaling scaling, const std::function<void(FakeCall&)>& compute) {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, name)) return kFailed;
    const auto c = s_.comm(comm, name);
    FakeStream* const s = s_.stream(rank_, stream, name);
    if (c == nullptr || s == nullptr) return kInvalidUsage;
    if (!ready(*c)) {
      s_.fault(std::string(name) + " on a communicator that is still being made");
      return kInvalidUsage;
    }
    const std::string signature = std::string(name) + " of " + std::to_string(count) + " x " + std::string(name_of(d)) +
                                  (op == Op::kAverage ? ", average" : "");
    const std::uint64_t number = ++c->group->issued[c->rank];
    const Bytes whole = bytes * c->group->ranks;
    join(s->clock, c->clock);
    const auto happens = [this, c, number, signature, in, out, compute] {
      return c->aborted || meets(*c, number, signature, in, out, compute);
    };
    s_.issue(*s, name, {{in, scaling == Scaling::kGroupIn ? whole : bytes}},
             {{out, scaling == Scaling::kGroupOut ? whole : bytes}}, {happens, {}});
    c->clock = s->clock;
    return number % 2 == 0 ? kInProgress : kSuccess;  // both are possible without blocking
  }

  bool meets(FakeComm& c, std::uint64_t number, const std::string& signature, const void* in, void* out,
             const std::function<void(FakeCall&)>& compute) {
    FakeGroup& g = *c.group;
    if (g.passed[c.rank] + 1 != number) return false;
    FakeCall& board = g.board[number];
    board.parts[c.rank] = {signature, in, out};
    if (board.parts.size() < static_cast<std::size_t>(g.ranks)) return false;
    for (const auto& [r, part] : board.parts) {
      if (part.signature == signature) continue;
      s_.fault("collectives do not match: " + std::min(signature, part.signature) + ", " +
               std::max(signature, part.signature));
      return false;  // the real one hangs, or worse
    }
    if (!board.done) compute(board);
    board.done = true;
    g.passed[c.rank] = number;
    return true;
  }

  FakeCuda::State& s_;
  const int rank_;
};

std::unique_ptr<NcclLibrary> make_fake_nccl(FakeCuda::State& state, int rank) {
  return std::make_unique<FakeNccl>(state, rank);
}

}  // namespace fsdp::testing
