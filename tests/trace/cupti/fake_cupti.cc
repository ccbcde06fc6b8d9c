// A libcupti without a GPU: the calls that the collector makes, with the rules that the real one has about them.
// Records are written into requested buffers in the layout of the version that it claims to be. Times of its clock are
// CLOCK_MONOTONIC + a constant.
#include "tests/trace/cupti/fake_cupti.h"

#include <time.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/trace/cupti_abi.h"
#include "tests/trace/cupti/record_bytes.h"

namespace {

using namespace harness::cupti;

constexpr std::int64_t kClockOffset = 1'700'000'000'000'000'000;
constexpr int kNotInitialized = 15, kQueueEmpty = 33, kInvalidParameter = 1;

struct Given {
  std::uint8_t* data = nullptr;
  std::size_t size = 0, used = 0;
};

struct State {
  std::mutex mutex;
  std::uint32_t version = 130001;
  int fail_at = 0, result = 0;
  std::vector<std::string> calls;
  bool subscribed = false, held = false;
  BufferRequest request = nullptr;
  BufferComplete complete = nullptr;
  std::set<std::uint32_t> kinds;
  std::vector<Given> buffers;
  std::size_t dropped = 0;
  std::uint32_t correlation = 0;
};
State& state() {
  static auto* s = new State;
  return *s;
}
thread_local std::map<std::uint32_t, std::vector<std::uint64_t>> stacks;

// The result to give at once, 0 to go on.
int count(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls.emplace_back(name);
  return static_cast<int>(s.calls.size()) == s.fail_at ? s.result : kSuccess;
}
#define COUNTED(name) \
  if (const int injected = count(name); injected != kSuccess) return injected

bool write(const std::vector<std::uint8_t>& record) {
  State& s = state();
  if (s.buffers.empty() || s.buffers.back().used + record.size() > s.buffers.back().size) {
    Given g;
    std::size_t most = 0;
    if (s.request) s.request(&g.data, &g.size, &most);
    if (g.data == nullptr || g.size < record.size()) return ++s.dropped, false;
    s.buffers.push_back(g);
  }
  Given& g = s.buffers.back();
  std::memcpy(g.data + g.used, record.data(), record.size());
  g.used += record.size();
  return true;
}

bool launch(const char* name, std::uint64_t begin, std::uint64_t end) {
  State& s = state();
  if (!s.subscribed || !s.kinds.contains(kKernel)) return true;
  const std::uint32_t correlation = ++s.correlation;
  bool all = true;
  const auto& stack = stacks[kOurExternalKind];
  if (s.kinds.contains(kExternalCorrelation) && !stack.empty())
    all &= write(RecordBytes(s.version).external(correlation, stack.back()).bytes());
  if (s.kinds.contains(kRuntimeCall))
    all &= write(RecordBytes(s.version).call(kRuntimeCall, begin == 0 ? 1 : begin - 1, begin + 1, correlation).bytes());
  return write(RecordBytes(s.version).kernel(name, begin, end, correlation).bytes()) && all;
}

[[maybe_unused]] std::int64_t now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

const FakeCupti kControls = {
    [] {
      State& s = state();
      s.version = 130001, s.fail_at = 0, s.calls.clear(), s.subscribed = false, s.held = false, s.request = nullptr;
      s.complete = nullptr, s.kinds.clear(), s.dropped = 0, s.correlation = 0;
      for (const Given& g : s.buffers) std::free(g.data);  // a flush that failed has left them here
      s.buffers.clear();
      stacks.clear();
    },
    [](int n, int result) {
      state().calls.clear();
      state().fail_at = n, state().result = result;
    },
    [] { return static_cast<int>(state().calls.size()); },
    [](int n) { return state().calls.at(static_cast<std::size_t>(n) - 1).c_str(); },
    [](std::uint32_t v) { state().version = v; },
    [](bool held) { state().held = held; },
    [](std::size_t n) { state().dropped = n; },
    launch,
    [] { return static_cast<int>(state().subscribed); },
    [] { return static_cast<int>(state().kinds.size()); },
    [] { return static_cast<int>(state().buffers.size()); },
    [] { return static_cast<int>(stacks[kOurExternalKind].size()); },
    [] { return kClockOffset; },
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const FakeCupti* fake_cupti() { return &kControls; }

EXPORT int cuptiGetVersion(std::uint32_t* version) {
  COUNTED("cuptiGetVersion");
  *version = state().version;
  return kSuccess;
}
EXPORT int cuptiSubscribe(Subscriber* subscriber, Callback callback, void*) {
  COUNTED("cuptiSubscribe");
  State& s = state();
  if (s.subscribed || s.held) return kOtherSubscriber;
  if (!callback) return kInvalidParameter;
  s.subscribed = true;
  *subscriber = &s;
  return kSuccess;
}
EXPORT int cuptiUnsubscribe(Subscriber subscriber) {
  COUNTED("cuptiUnsubscribe");
  if (subscriber != &state() || !state().subscribed) return kInvalidParameter;
  state().subscribed = false;
  return kSuccess;
}
EXPORT int cuptiActivityRegisterCallbacks(BufferRequest request, BufferComplete complete) {
  COUNTED("cuptiActivityRegisterCallbacks");
  state().request = request, state().complete = complete;
  return kSuccess;
}
EXPORT int cuptiActivityEnable(std::uint32_t kind) {
  COUNTED("cuptiActivityEnable");
  if (!state().request) return kNotInitialized;
  state().kinds.insert(kind);
  return kSuccess;
}
EXPORT int cuptiActivityDisable(std::uint32_t kind) {
  COUNTED("cuptiActivityDisable");
  return state().kinds.erase(kind) == 1 ? kSuccess : kInvalidParameter;
}
EXPORT int cuptiActivityFlushAll(std::uint32_t) {
  COUNTED("cuptiActivityFlushAll");
  const std::vector<Given> buffers = std::exchange(state().buffers, {});
  for (const Given& g : buffers) state().complete(nullptr, 0, g.data, g.size, g.used);
  return kSuccess;
}
EXPORT int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  auto* r = static_cast<std::uint8_t*>(*record);
  std::uint32_t kind = 0;
  if (r == nullptr) {
    r = buffer;
  } else {
    std::memcpy(&kind, r, sizeof kind);
    r += record_size(kind, state().version);
  }
  if (r + sizeof kind > buffer + valid) return kEndOfBuffer;
  std::memcpy(&kind, r, sizeof kind);
  if (record_size(kind, state().version) == 0) return kInvalidKind;
  *record = r;
  return kSuccess;
}
EXPORT int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  COUNTED("cuptiActivityGetNumDroppedRecords");
  *dropped = std::exchange(state().dropped, 0);
  return kSuccess;
}
EXPORT int cuptiActivityPushExternalCorrelationId(std::uint32_t kind, std::uint64_t id) {
  COUNTED("cuptiActivityPushExternalCorrelationId");
  stacks[kind].push_back(id);
  return kSuccess;
}
EXPORT int cuptiActivityPopExternalCorrelationId(std::uint32_t kind, std::uint64_t* last) {
  COUNTED("cuptiActivityPopExternalCorrelationId");
  auto& stack = stacks[kind];
  if (stack.empty()) return kQueueEmpty;
  *last = stack.back();
  stack.pop_back();
  return kSuccess;
}
#ifndef FAKE_CUPTI_WITHOUT_TIMESTAMP
EXPORT int cuptiGetTimestamp(std::uint64_t* t) {
  COUNTED("cuptiGetTimestamp");
  *t = static_cast<std::uint64_t>(now() + kClockOffset);
  return kSuccess;
}
#endif
EXPORT int cuptiActivitySetAttribute(std::uint32_t, std::size_t*, void*) {
  COUNTED("cuptiActivitySetAttribute");
  return kSuccess;
}
EXPORT int cuptiSetThreadIdType(std::uint32_t) {
  COUNTED("cuptiSetThreadIdType");
  return kSuccess;
}
