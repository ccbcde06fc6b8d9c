#include "harness/trace/cupti_collector.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "fsdp/core/clock.h"

namespace harness {
namespace {

struct Free {
  void operator()(std::uint8_t* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::uint8_t[], Free>;

struct Filled {
  Buffer buffer;
  std::size_t valid = 0;
};

// The buffers of the process. CUPTI holds on to them, and its callbacks carry no argument: this lives as long as the
// process. No call of CUPTI is made with the lock held.
class BufferPool {
 public:
  static BufferPool& instance() {
    static BufferPool* pool = new BufferPool;
    return *pool;
  }

  void prepare(const CuptiCollector::Options& o, bool may_refuse) {
    const std::lock_guard lock(mutex_);
    if (o.buffer_bytes != bytes_) ready_.clear();
    bytes_ = o.buffer_bytes;
    most_ = o.most_buffers;
    may_refuse_ = may_refuse;
    refused_ = 0;
    given_ -= std::min(given_, filled_.size());
    filled_.clear();
    while (ready_.size() < o.ready_buffers) ready_.push_back(make());
  }

  // From CUPTI, on the thread that launches.
  std::uint8_t* request(std::size_t* size) {
    const std::lock_guard lock(mutex_);
    *size = 0;
    if (may_refuse_ && given_ >= most_) return ++refused_, nullptr;
    Buffer b;
    if (ready_.empty()) {
      b = make();
    } else {
      b = std::move(ready_.back());
      ready_.pop_back();
    }
    if (!b) return ++refused_, nullptr;
    ++given_;
    *size = bytes_;
    return b.release();
  }
  void complete(std::uint8_t* buffer, std::size_t size, std::size_t valid) {
    const std::lock_guard lock(mutex_);
    Buffer b(buffer);
    if (valid > 0) {
      filled_.push_back({std::move(b), std::min(valid, size)});
      return;
    }
    --given_;
    if (size == bytes_) ready_.push_back(std::move(b));
  }

  std::vector<Filled> take_filled() {
    const std::lock_guard lock(mutex_);
    given_ -= std::min(given_, filled_.size());
    return std::exchange(filled_, {});
  }
  std::uint64_t refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  // Zeroed and touched: CUPTI is told so and spares itself the work inside the launch.
  Buffer make() const {
    auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes_ + 63) / 64 * 64));
    if (p != nullptr) std::memset(p, 0, bytes_);
    return Buffer(p);
  }

  mutable std::mutex mutex_;
  std::vector<Buffer> ready_;
  std::vector<Filled> filled_;
  std::size_t bytes_ = 0, most_ = 0, given_ = 0;  // given: with CUPTI, or filled and not yet taken
  bool may_refuse_ = false;
  std::uint64_t refused_ = 0;
};

void on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *max_records = 0;
  *buffer = BufferPool::instance().request(size);
}
void on_complete(void*, std::uint32_t, std::uint8_t* buffer, std::size_t size, std::size_t valid) {
  if (buffer != nullptr) BufferPool::instance().complete(buffer, size, valid);
}
void on_callback(void*, std::uint32_t, std::uint32_t, const void*) {}

struct WantedKind {
  cupti::Kind kind;
  bool needed;
};
// Calls first: without them there are no correlation ids.
constexpr std::array kKinds = {WantedKind{cupti::kExternalCorrelation, true},
                               WantedKind{cupti::kRuntimeCall, true},
                               WantedKind{cupti::kDriverCall, true},
                               WantedKind{cupti::kKernel, true},
                               WantedKind{cupti::kMemcpy, true},
                               WantedKind{cupti::kMemset, true},
                               WantedKind{cupti::kPeerMemcpy, false},
                               WantedKind{cupti::kOverhead, false}};

}  // namespace

class CuptiCollector::Impl {
 public:
  Impl(const CuptiLibrary& library, const Options& options)
      : api_(library.api), version_(library.version), options_(options), sink_(*this) {}

  std::string start() {
    if (collecting_) return "";
    samples_.clear();
    notes_.clear();
    BufferPool::instance().prepare(options_, version_ >= cupti::kRejectionIsSafe);
    std::string why = begin();
    if (!why.empty()) return undo(), why;
    pid_ = getpid();
    collecting_ = true;
    sample_clock();
    return "";
  }

  bool collecting() const { return collecting_ && pid_ == getpid(); }

  void sample_clock() {
    if (!collecting()) return;
    std::vector<ClockSample> tries;
    for (int i = 0; i < 5; ++i) {
      ClockSample s;
      std::uint64_t t = 0;
      s.before = fsdp::steady_now();
      if (api_.timestamp(&t) != cupti::kSuccess) continue;
      s.after = fsdp::steady_now();
      s.cupti = static_cast<fsdp::Nanos>(t);
      tries.push_back(s);
    }
    if (!tries.empty()) samples_.push_back(narrowest(tries));
  }

  CuptiTrace stop(int rank) {
    if (!collecting()) return {};
    sample_clock();
    collecting_ = false;
    note("cuptiActivityFlushAll", api_.flush_all(cupti::kFlushForced));
    std::size_t dropped = 0;
    note("cuptiActivityGetNumDroppedRecords", api_.dropped_records(nullptr, 0, &dropped));
    CuptiRecords records;
    for (Filled& f : BufferPool::instance().take_filled()) {
      if (cupti::sizes_known(version_))
        decode_cupti_buffer(f.buffer.get(), f.valid, version_, records);
      else
        decode_cupti_buffer(f.buffer.get(), f.valid, api_.next_record, records);
    }
    undo();
    records.losses.dropped = dropped;
    records.losses.rejected = BufferPool::instance().refused();
    const ClockMap clock(samples_);
    CuptiTrace trace = spans_of_cupti(records, sizes_, clock, rank);
    if (samples_.empty())
      notes_.emplace_back("CUPTI's clock could not be read: times of the GPU are on a clock of their own");
    trace.notes.insert(trace.notes.end(), notes_.begin(), notes_.end());
    return trace;
  }

  fsdp::RangeSink& tags(fsdp::RangeSink* next) {
    sink_.next = next;
    return sink_;
  }

 private:
  struct Sink final : fsdp::RangeSink {
    explicit Sink(Impl& impl) : impl(impl) {}
    void push(const fsdp::WorkTag& tag, int step) noexcept override {
      if (next) next->push(tag, step);
      impl.push(tag, step);
    }
    void pop() noexcept override {
      impl.pop();
      if (next) next->pop();
    }
    Impl& impl;
    fsdp::RangeSink* next = nullptr;
  };

  // Pops follow pushes of before start() and after stop() too: CUPTI's stack of a thread that is empty says so,
  // harmlessly.
  void push(const fsdp::WorkTag& tag, int step) noexcept {
    if (!collecting()) return;
    StepTag t{tag, step, 0};
    t.size = sizes_.index_of(tag.bytes);
    api_.push_external(cupti::kOurExternalKind, pack_tag(t));
  }
  void pop() noexcept {
    std::uint64_t last = 0;
    if (collecting()) api_.pop_external(cupti::kOurExternalKind, &last);
  }

  std::string begin() {
    if (const int r = api_.subscribe(&subscriber_, on_callback, nullptr); r != cupti::kSuccess) {
      subscriber_ = nullptr;
      return cupti_refusal("cuptiSubscribe", r);
    }
    subscribed_ = true;
    if (api_.set_thread_ids) api_.set_thread_ids(cupti::kSystemThreadIds);
    if (const int r = api_.register_callbacks(on_request, on_complete); r != cupti::kSuccess)
      return cupti_refusal("cuptiActivityRegisterCallbacks", r);
    std::size_t size = 1;
    std::uint8_t yes = 1;
    if (api_.set_attribute) api_.set_attribute(cupti::kZeroedBuffers, &size, &yes);
    for (const WantedKind& w : kKinds) {
      const int r = api_.enable(w.kind);
      if (r == cupti::kSuccess)
        enabled_.push_back(w.kind);
      else if (w.needed)
        return cupti_refusal("cuptiActivityEnable", r);
    }
    return "";
  }

  void undo() {
    while (!enabled_.empty()) {
      note("cuptiActivityDisable", api_.disable(enabled_.back()));
      enabled_.pop_back();
    }
    if (std::exchange(subscribed_, false)) note("cuptiUnsubscribe", api_.unsubscribe(subscriber_));
  }

  void note(const char* call, int result) {
    if (result != cupti::kSuccess)
      notes_.push_back("the trace of the GPU may lack its end: " + std::string(call) + " gave " +
                       std::to_string(result));
  }

  const cupti::Api api_;
  const std::uint32_t version_;
  const Options options_;
  Sink sink_;
  SizeTable sizes_;
  cupti::Subscriber subscriber_ = nullptr;
  bool subscribed_ = false;
  std::atomic<bool> collecting_{false};
  pid_t pid_ = 0;
  std::vector<cupti::Kind> enabled_;
  std::vector<ClockSample> samples_;
  std::vector<std::string> notes_;
};

CuptiCollector::CuptiCollector(const CuptiLibrary& library) : CuptiCollector(library, Options{}) {}
CuptiCollector::CuptiCollector(const CuptiLibrary& library, const Options& options)
    : impl_(std::make_unique<Impl>(library, options)) {}
CuptiCollector::~CuptiCollector() = default;
std::string CuptiCollector::start() { return impl_->start(); }
bool CuptiCollector::collecting() const { return impl_->collecting(); }
void CuptiCollector::sample_clock() { impl_->sample_clock(); }
fsdp::RangeSink& CuptiCollector::tags(fsdp::RangeSink* next) { return impl_->tags(next); }
CuptiTrace CuptiCollector::stop(int rank) { return impl_->stop(rank); }

}  // namespace harness
