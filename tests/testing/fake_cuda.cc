#include "tests/testing/fake_cuda.h"

#include <cstring>

#include "fsdp/comm/local_kernels.h"
#include "fsdp/core/clock.h"
#include "tests/testing/fake_cuda_state.h"

namespace fsdp::testing {

void join(Clock& into, const Clock& other) {
  for (const auto& [stream, tick] : other) into[stream] = std::max(into[stream], tick);
}

bool FakeCuda::State::injected(int rank, const char* name) {
  const auto r = static_cast<std::size_t>(rank);
  const int number = calls[r][name]++;
  if (fail[r] != std::pair(std::string(name), number)) return false;
  failed = name;
  return true;
}

FakeStream* FakeCuda::State::add_stream(int rank) {
  auto s = std::make_unique<FakeStream>();
  s->id = next_stream++, s->rank = rank;
  FakeStream* const raw = s.get();
  streams.emplace(raw, std::move(s));
  if (default_streams.size() < static_cast<std::size_t>(ranks)) default_streams.push_back(raw);
  return raw;
}

FakeStream* FakeCuda::State::stream(int rank, CudaRuntime::Stream s, const char* call) {
  if (s == nullptr) return default_streams[static_cast<std::size_t>(rank)];
  const auto found = streams.find(s);
  if (found != streams.end()) return found->second.get();
  fault(std::string(call) + " on a stream that does not exist");
  return nullptr;
}

std::shared_ptr<FakeEvent> FakeCuda::State::event(CudaRuntime::EventHandle e, const char* call) {
  const auto found = events.find(e);
  if (found != events.end()) return found->second;
  fault(std::string(call) + " of an event that does not exist");
  return nullptr;
}

FakeBlock* FakeCuda::State::block_of(const void* p) {
  const auto* const at = static_cast<const std::byte*>(p);
  auto after = blocks.upper_bound(at);
  if (after == blocks.begin()) return nullptr;
  FakeBlock& b = std::prev(after)->second;
  return at < b.memory.data() + b.memory.size() ? &b : nullptr;
}

void FakeCuda::State::check(FakeStream& s, const std::string& what, const Range& range, bool write) {
  FakeBlock* const block = range.bytes > 0 ? block_of(range.begin) : nullptr;
  if (block == nullptr) return;  // memory of a test's own
  const auto* const begin = static_cast<const std::byte*>(range.begin);
  const auto* const end = begin + range.bytes;
  if (block->freed) fault(what + " uses memory that was given back");
  if (end > block->memory.data() + block->memory.size()) fault(what + " goes past the end of its memory");
  for (const Access& a : block->accesses) {
    if (a.stream == s.id || (!a.write && !write) || a.end <= begin || end <= a.begin) continue;
    const auto seen = s.clock.find(a.stream);
    if (seen != s.clock.end() && seen->second >= a.tick) continue;
    fault(what + (write ? " writes" : " reads") + " what " + a.what + " may still " + (a.write ? "write" : "read"));
  }
  if (write) {
    std::erase_if(block->accesses, [&](const Access& a) { return begin <= a.begin && a.end <= end; });
  }
  block->accesses.push_back({s.id, s.clock[s.id], write, begin, end, what});
}

void FakeCuda::State::issue(FakeStream& s, const std::string& what, const std::vector<Range>& reads,
                            const std::vector<Range>& writes, FakeWork work) {
  join(s.clock, host[static_cast<std::size_t>(s.rank)]);
  ++s.clock[s.id];
  for (const Range& r : reads) check(s, what, r, false);
  for (const Range& r : writes) check(s, what, r, true);
  s.queue.push_back(std::move(work));
}

void FakeCuda::State::pump() {
  std::vector<FakeStream*> order;
  for (const auto& [handle, s] : streams) order.push_back(s.get());
  std::sort(order.begin(), order.end(), [](const FakeStream* a, const FakeStream* b) { return a->id < b->id; });
  std::shuffle(order.begin(), order.end(), random);
  for (bool progress = true; progress;) {
    progress = false;
    for (FakeStream* s : order) {
      while (!s->held && !s->queue.empty() && (!s->queue.front().ready || s->queue.front().ready())) {
        const FakeWork work = std::move(s->queue.front());
        s->queue.pop_front();
        if (work.run) work.run();
        progress = true;
      }
    }
  }
}

class FakeRuntime final : public CudaRuntime {
 public:
  FakeRuntime(FakeCuda::State& s, int rank) : s_(s), rank_(rank) {}

  Status stream_create(Stream* out, Priority) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaStreamCreateWithPriority")) return kFailed;
    *out = s_.add_stream(rank_);
    return kSuccess;
  }
  Status stream_destroy(Stream stream) override {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, "cudaStreamDestroy");
    if (stream == nullptr) return kFailed;
    if (s_.stream(rank_, stream, "cudaStreamDestroy") != nullptr) s_.streams.erase(stream);
    return failed ? kFailed : kSuccess;
  }
  Status stream_wait_event(Stream stream, EventHandle event) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaStreamWaitEvent")) return kFailed;
    FakeStream* const s = s_.stream(rank_, stream, "cudaStreamWaitEvent");
    const auto e = s_.event(event, "cudaStreamWaitEvent");
    if (s == nullptr || e == nullptr) return kFailed;
    join(s->clock, e->clock);
    s_.issue(*s, "wait", {}, {}, {[e, n = e->recordings] { return e->reached >= n; }, {}});
    return kSuccess;
  }
  Status event_create(EventHandle* event, Timing timing) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaEventCreateWithFlags")) return kFailed;
    auto e = std::make_shared<FakeEvent>();
    e->rank = rank_, e->timed = timing == Timing::kOn;
    *event = e.get();
    s_.events.emplace(e.get(), e);
    return kSuccess;
  }
  Status event_destroy(EventHandle event) override {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, "cudaEventDestroy");
    if (event == nullptr) return kFailed;
    if (s_.event(event, "cudaEventDestroy") != nullptr) s_.events.erase(event);
    return failed ? kFailed : kSuccess;
  }
  Status event_record(EventHandle event, Stream stream) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaEventRecord")) return kFailed;
    FakeStream* const s = s_.stream(rank_, stream, "cudaEventRecord");
    const auto e = s_.event(event, "cudaEventRecord");
    if (s == nullptr || e == nullptr) return kFailed;
    const std::uint64_t n = ++e->recordings;
    s_.issue(*s, "record", {}, {}, {{}, [e, n] { e->reached = n, e->at = steady_now(); }});
    e->clock = s->clock;
    return kSuccess;
  }
  // A question whose answer is "not yet" does not count as a call: how many there are depends on the machine.
  Status event_query(EventHandle event) override {
    const Locked lock(s_.mutex);
    const auto e = s_.event(event, "cudaEventQuery");
    if (e == nullptr) return kFailed;
    s_.pump();
    if (e->reached < e->recordings) return kNotReady;
    if (s_.injected(rank_, "cudaEventQuery")) return kFailed;
    join(s_.host[static_cast<std::size_t>(rank_)], e->clock);
    return kSuccess;
  }
  Status event_elapsed(float* ms, EventHandle begin, EventHandle end) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaEventElapsedTime")) return kFailed;
    const auto from = s_.event(begin, "cudaEventElapsedTime"), to = s_.event(end, "cudaEventElapsedTime");
    if (from == nullptr || to == nullptr) return kFailed;
    if (!from->timed || !to->timed) s_.fault("cudaEventElapsedTime of an event without timing");
    if (from->reached < from->recordings || to->reached < to->recordings) return kNotReady;
    *ms = static_cast<float>(static_cast<double>(to->at - from->at) * 1e-6);
    return kSuccess;
  }
  Status copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    const auto n = static_cast<Bytes>(bytes);
    return kernel("cudaMemcpyAsync", stream, {{from, n}}, {{to, n}}, [=] {
      if (bytes > 0) std::memmove(to, from, bytes);
    });
  }
  Status allocate(void** memory, std::size_t bytes, Stream stream) override {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, "cudaMalloc")) return kFailed;
    if (s_.stream(rank_, stream, "cudaMalloc") == nullptr) return kFailed;
    if (s_.capacity >= 0 && s_.allocated(rank_) + static_cast<Bytes>(bytes) > s_.capacity) return kOutOfMemory;
    *memory = s_.add_block(rank_, bytes, stream);
    return kSuccess;
  }
  Status release(void* memory, Stream stream) override {
    const Locked lock(s_.mutex);
    const bool failed = s_.injected(rank_, "cudaFree");
    s_.give_back(rank_, memory, stream, "cudaFree");
    return failed ? kFailed : kSuccess;
  }
  Status sum(const Sum& w, Stream stream) override {
    std::vector<FakeCuda::Range> reads;
    std::vector<const void*> in(w.in, w.in + w.inputs);
    for (const void* p : in) reads.push_back({p, w.count * size_of(w.in_dtype)});
    const FakeCuda::Range out{w.out, w.count * size_of(w.out_dtype)};
    if (w.accumulate) reads.push_back(out);
    if (w.addend != nullptr) reads.push_back({w.addend, w.count * size_of(Dtype::kFloat32)});
    return kernel("sum kernel", stream, reads, {out}, [w, in] {
      const auto before = [&w](Count i) {
        if (w.accumulate) return read(w.out, w.out_dtype, i);
        return w.addend != nullptr ? w.addend[i] : 0.0f;
      };
      for (Count i = 0; i < w.count; ++i) {
        float sum = read(in[0], w.in_dtype, i);
        for (std::size_t k = 1; k < in.size(); ++k) sum += read(in[k], w.in_dtype, i);
        write(w.out, w.out_dtype, i, before(i) + w.scale * sum);
      }
    });
  }
  Status paced_copy(const PacedCopy& w, Stream stream) override {
    {
      const Locked lock(s_.mutex);
      s_.paced.push_back(w);
    }
    return kernel("paced copy kernel", stream, {{w.from, w.bytes}}, {{w.to, w.bytes * w.copies}}, [w] {
      for (int k = 0; k < w.copies && w.bytes > 0; ++k) {
        std::memmove(static_cast<std::byte*>(w.to) + k * w.bytes, w.from, static_cast<std::size_t>(w.bytes));
      }
    });
  }
  std::string error_name(Status status) const override {
    return status == kOutOfMemory ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
  }

  static float read(const void* p, Dtype d, Count i) {
    return d == Dtype::kFloat32 ? static_cast<const float*>(p)[i]
                                : bfloat16_to_float(static_cast<const std::uint16_t*>(p)[i]);
  }
  static void write(void* p, Dtype d, Count i, float v) {
    if (d == Dtype::kFloat32)
      static_cast<float*>(p)[i] = v;
    else
      static_cast<std::uint16_t*>(p)[i] = float_to_bfloat16(v);
  }

 private:
  using Locked = std::lock_guard<std::mutex>;
  static constexpr Status kFailed = 999;  // cudaErrorUnknown

  Status kernel(const char* name, Stream stream, const std::vector<FakeCuda::Range>& reads,
                const std::vector<FakeCuda::Range>& writes, std::function<void()> work) {
    const Locked lock(s_.mutex);
    if (s_.injected(rank_, name)) return kFailed;
    FakeStream* const s = s_.stream(rank_, stream, name);
    if (s == nullptr) return kFailed;
    s_.issue(*s, name, reads, writes, {{}, std::move(work)});
    return kSuccess;
  }

  FakeCuda::State& s_;
  const int rank_;
};

void* FakeCuda::State::add_block(int rank, std::size_t bytes, CudaRuntime::Stream stream) {
  FakeBlock b;
  b.memory.resize(std::max<std::size_t>(1, bytes), std::byte{0xCD});
  b.rank = rank, b.stream = stream;
  void* const p = b.memory.data();
  blocks.emplace(b.memory.data(), std::move(b));
  return p;
}

void FakeCuda::State::give_back(int rank, void* memory, CudaRuntime::Stream on, const char* call) {
  const auto found = blocks.find(static_cast<const std::byte*>(memory));
  if (found == blocks.end() || found->second.freed) return fault(std::string(call) + " of memory that is not there");
  FakeBlock& b = found->second;
  // The next owner uses it on the stream it was made for: what others do to it must be over by then.
  FakeStream* const s = stream(rank, on, call);
  if (s == nullptr) return;
  issue(*s, call, {}, {{b.memory.data(), static_cast<Bytes>(b.memory.size())}}, {});
  b.freed = true;
}

Bytes FakeCuda::State::allocated(int rank) const {
  Bytes sum = 0;
  for (const auto& [p, b] : blocks) sum += b.rank == rank && !b.freed ? static_cast<Bytes>(b.memory.size()) : 0;
  return sum;
}

std::unique_ptr<NcclLibrary> make_fake_nccl(FakeCuda::State& state, int rank);

FakeCuda::FakeCuda(int ranks, std::uint32_t seed) : s_(std::make_unique<State>(ranks, seed)) {
  for (int r = 0; r < ranks; ++r) {
    runtimes_.push_back(std::make_unique<FakeRuntime>(*s_, r));
    nccls_.push_back(make_fake_nccl(*s_, r));
  }
}
FakeCuda::~FakeCuda() = default;

CudaRuntime& FakeCuda::runtime(int rank) { return *runtimes_[static_cast<std::size_t>(rank)]; }
NcclLibrary& FakeCuda::nccl(int rank) { return *nccls_[static_cast<std::size_t>(rank)]; }

std::vector<std::string> FakeCuda::faults() const {
  const std::lock_guard lock(s_->mutex);
  return s_->faults;
}

FakeCuda::Live FakeCuda::live() const {
  const std::lock_guard lock(s_->mutex);
  Live l;
  l.streams = static_cast<int>(s_->streams.size()) - s_->ranks;
  l.events = static_cast<int>(s_->events.size());
  for (const auto& [p, b] : s_->blocks) l.blocks += b.freed ? 0 : 1;
  l.communicators = static_cast<int>(s_->comms.size());
  l.registrations = static_cast<int>(s_->registrations.size());
  return l;
}

void FakeCuda::fail_call(int rank, const std::string& name, int number) {
  const std::lock_guard lock(s_->mutex);
  s_->fail[static_cast<std::size_t>(rank)] = {name, number};
}
std::map<std::string, int> FakeCuda::calls(int rank) const {
  const std::lock_guard lock(s_->mutex);
  return s_->calls[static_cast<std::size_t>(rank)];
}
std::string FakeCuda::failed_call() const {
  const std::lock_guard lock(s_->mutex);
  return s_->failed;
}
void FakeCuda::set_capacity(Bytes bytes) {
  const std::lock_guard lock(s_->mutex);
  s_->capacity = bytes;
}
Bytes FakeCuda::allocated(int rank) const {
  const std::lock_guard lock(s_->mutex);
  return s_->allocated(rank);
}
void FakeCuda::set_nccl_version(int version) {
  const std::lock_guard lock(s_->mutex);
  s_->nccl_version = version;
}
void FakeCuda::hold(int rank, CudaRuntime::Stream stream) {
  const std::lock_guard lock(s_->mutex);
  s_->stream(rank, stream, "hold")->held = true;
}
void FakeCuda::let_go(int rank, CudaRuntime::Stream stream) {
  const std::lock_guard lock(s_->mutex);
  s_->stream(rank, stream, "let_go")->held = false;
}
void FakeCuda::enqueue(int rank, CudaRuntime::Stream stream, const std::string& what, const std::vector<Range>& reads,
                       const std::vector<Range>& writes, std::function<void()> work) {
  const std::lock_guard lock(s_->mutex);
  s_->issue(*s_->stream(rank, stream, "enqueue"), what, reads, writes, {{}, std::move(work)});
}
void FakeCuda::run() {
  const std::lock_guard lock(s_->mutex);
  s_->pump();
}
std::vector<CudaRuntime::PacedCopy> FakeCuda::paced_copies() const {
  const std::lock_guard lock(s_->mutex);
  return s_->paced;
}
std::vector<NcclLibrary::Config> FakeCuda::configs() const {
  const std::lock_guard lock(s_->mutex);
  return s_->configs;
}

}  // namespace fsdp::testing
