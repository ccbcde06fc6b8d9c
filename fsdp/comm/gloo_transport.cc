#include "fsdp/comm/gloo_transport.h"

#define USE_C10D_GLOO 1
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "fsdp/comm/gloo_store.h"
#include "fsdp/comm/local_kernels.h"
#include "fsdp/comm/local_memory.h"
#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"
#include "fsdp/core/seconds.h"
#include "fsdp/device/host/wait_word.h"

namespace fsdp {
namespace {

using Gloo = c10d::ProcessGroupGloo;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kWatchInterval = 20 * kMillisecond;
constexpr Nanos kAgreement = 1000 * kMillisecond;  // for others to say what they are in

std::size_t bytes_of(Count count, Dtype dtype) { return static_cast<std::size_t>(count * size_of(dtype)); }
std::byte* at_byte(void* p, std::size_t n) { return static_cast<std::byte*>(p) + n; }
// Gloo's send does not write to what it takes.
std::byte* at_byte(const void* p, std::size_t n) { return static_cast<std::byte*>(const_cast<void*>(p)) + n; }

std::chrono::milliseconds milliseconds(Nanos t) {
  return std::chrono::milliseconds(std::max<Nanos>(1, t / kMillisecond));
}

std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

// Gloo throws one type for everything.
bool is_timeout(const std::string& why) {
  return why.find("imed out") != std::string::npos || why.find("imeout") != std::string::npos;
}

// What ranks must agree on, in words. `number` counts the calls of the communicator.
std::string describe(const CollectiveCall* call, std::uint64_t number) {
  std::string text = call == nullptr ? "exchange" : std::string(name_of(call->kind));
  if (call != nullptr && call->unit != kNoUnit) text += " of unit " + std::to_string(call->unit);
  text += " (";
  if (call != nullptr && call->kind != CollectiveKind::kBarrier) {
    text += std::to_string(call->count) + " x " + std::string(name_of(call->in_dtype));
    if (call->out_dtype != call->in_dtype) text += " to " + std::string(name_of(call->out_dtype));
    text += ", ";
  }
  return text + "call " + std::to_string(number) + ")";
}

// 12 bits of the call's number, 18 bits of a hash of what ranks must agree on, 1 bit for the second half of an
// all-reduce.
int tag_of(const CollectiveCall* call, std::uint64_t number) {
  std::uint64_t h = 0x9e3779b97f4a7c15u;
  const auto mix = [&h](std::uint64_t v) { h = (h ^ v) * 0x100000001b3u, h ^= h >> 29; };
  if (call != nullptr) {
    mix(1 + static_cast<std::uint64_t>(call->kind)), mix(static_cast<std::uint32_t>(call->unit));
    mix(static_cast<std::uint64_t>(call->count)), mix(static_cast<std::uint64_t>(call->in_dtype));
    mix(static_cast<std::uint64_t>(call->out_dtype));
  }
  return static_cast<int>((number & 0xfff) << 19 | (h >> 20 & 0x3ffff) << 1);
}

class GlooTransport final : public Transport {
 public:
  GlooTransport(Rendezvous& rendezvous, const std::string& group, int rank, std::vector<int> members, Nanos timeout,
                Nanos connecting);
  ~GlooTransport() override;

  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(members_.size()); }
  Nanos run(const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;
  void* allocate(Bytes n) override { return memory_.allocate(n); }
  void release(void* p) noexcept override { memory_.release(p); }
  void check() override {
    if (const auto reason = gave_up_->value()) throw CommError("[gloo] " + *reason);
  }
  void abort(const std::string& reason) noexcept override;

 private:
  // The messages of one phase: posted together, awaited together.
  void receive(int from, void* p, std::size_t n, int tag);
  void send(int to, const void* p, std::size_t n, int tag);
  void finish();

  void all_gather(const void* in, void* out, std::size_t piece, int tag);
  void ring(void* full, const std::vector<std::size_t>& begin, int tag);
  void reduce(const CollectiveCall& call, const std::vector<std::size_t>& begin, void* out, bool accumulate, int tag);
  void all_reduce(const CollectiveCall& call, int tag);
  void broadcast(const CollectiveCall& call, int tag);
  std::vector<std::uint64_t> everybodys(std::uint64_t value, int tag);

  template <class F>
  void guarded(const CollectiveCall* call, F work);
  [[noreturn]] void fail(const std::string& why);
  [[noreturn]] void fail_to_connect(const std::string& why);
  // Of the ranks that have not set `key`/RANK until the deadline: their names.
  std::string missing(const std::string& what, Nanos deadline);
  std::string compare_calls();
  void say_where();
  std::string key(const std::string& name) const { return "gloo/" + group_ + "/" + name; }
  std::string key_of(const std::string& name, int rank) const { return key(name + "/" + std::to_string(rank)); }
  std::string name(int rank) const { return "rank " + std::to_string(members_[static_cast<std::size_t>(rank)]); }
  void watch();

  Rendezvous& rendezvous_;
  const std::string group_;
  const int rank_;
  const std::vector<int> members_;
  const Nanos timeout_;
  Nanos wait_timeout_;                             // of connecting, then timeout_
  std::shared_ptr<const Awaited> gave_up_, late_;  // a rank that gave up, with its reason; a rank that waited too long
  ThreadMemory memory_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<Gloo> gloo_;
  std::uint64_t calls_ = 0;
  std::mutex where_mutex_;
  std::string where_;  // the call that this rank is in; empty: none
  std::mutex pending_mutex_;
  std::vector<WorkPtr> pending_;
  std::atomic<bool> stopped_by_peer_{false};
  WaitWord<WaitScope::kThreads> stop_;
  std::thread watcher_;
};

std::shared_ptr<gloo::transport::Device> device_for(const std::string& host) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) return Gloo::createDeviceForInterface(interface);
  if (host == "localhost" || host.rfind("127.", 0) == 0) return Gloo::createDeviceForHostname("127.0.0.1");
  return Gloo::createDefaultDevice();
}

GlooTransport::GlooTransport(Rendezvous& rendezvous, const std::string& group, int rank, std::vector<int> members,
                             Nanos timeout, Nanos connecting)
    : rendezvous_(rendezvous),
      group_(group),
      rank_(rank),
      members_(std::move(members)),
      timeout_(timeout),
      wait_timeout_(connecting),
      gave_up_(rendezvous.await(key("gave up"))),
      late_(rendezvous.await(key("late"))) {
  if (world() == 1) return;
  auto options = Gloo::Options::create(milliseconds(wait_timeout_));
  options->threads = 1;
  try {
    options->devices.push_back(device_for(rendezvous.host()));
    rendezvous.set(key_of("here", rank), "");
    auto store = c10::make_intrusive<GlooStore>(rendezvous, key("connect") + "/", steady_now() + wait_timeout_);
    gloo_ = std::make_unique<Gloo>(std::move(store), rank, world(), options);
    everybodys(0, 0);  // nobody leaves while others still connect
  } catch (const std::exception& e) {
    fail_to_connect(first_line(e.what()));
  }
  wait_timeout_ = timeout_;
  watcher_ = std::thread([this] { watch(); });
}

GlooTransport::~GlooTransport() {
  stop_.store(1);
  if (watcher_.joinable()) watcher_.join();
}

// Gloo cannot be told from outside that a peer gave up; its waits can be ended from another thread of this process. It
// also tells a peer that asks, for want of somebody, that this rank is not the one.
void GlooTransport::watch() {
  const auto stopped = [](std::uint32_t v) { return v != 0; };
  while (!stop_.wait(stopped, kWatchInterval)) {
    if (late_->value()) say_where();
    if (!gave_up_->value()) continue;
    stopped_by_peer_.store(true, std::memory_order_release);
    const std::lock_guard lock(pending_mutex_);
    for (const WorkPtr& w : pending_) w->abort();
  }
}

void GlooTransport::say_where() {
  const std::lock_guard lock(where_mutex_);
  if (!where_.empty()) rendezvous_.set(key_of("stuck", rank_), where_);
}

void GlooTransport::abort(const std::string& reason) noexcept {
  try {
    rendezvous_.set(key("gave up"), name(rank_) + " gave up: " + reason);
  } catch (const std::exception&) {  // no memory: peers have their deadline
  }
}

void GlooTransport::receive(int from, void* p, std::size_t n, int tag) {
  if (n == 0) return;
  std::vector<at::Tensor> t{at::from_blob(p, {static_cast<std::int64_t>(n)}, at::kByte)};
  WorkPtr work = gloo_->recv(t, from, tag);
  const std::lock_guard lock(pending_mutex_);
  pending_.push_back(std::move(work));
}

void GlooTransport::send(int to, const void* p, std::size_t n, int tag) {
  if (n == 0) return;
  std::vector<at::Tensor> t{at::from_blob(const_cast<void*>(p), {static_cast<std::int64_t>(n)}, at::kByte)};
  WorkPtr work = gloo_->send(t, to, tag);
  const std::lock_guard lock(pending_mutex_);
  pending_.push_back(std::move(work));
}

void GlooTransport::finish() {
  const Nanos deadline = steady_now() + wait_timeout_;
  for (std::size_t i = 0; i < pending_.size(); ++i) {  // only this thread changes the list
    if (stopped_by_peer_.load(std::memory_order_acquire) || !pending_[i]->wait(milliseconds(deadline - steady_now()))) {
      throw CommError("ended by a peer");
    }
  }
  const std::lock_guard lock(pending_mutex_);
  pending_.clear();
}

template <class F>
void GlooTransport::guarded(const CollectiveCall* call, F work) {
  ++calls_;
  if (world() == 1) return work(0);
  const auto be_in = [this](std::string where) {
    const std::lock_guard lock(where_mutex_);
    where_ = std::move(where);
  };
  be_in(describe(call, calls_));
  try {
    work(tag_of(call, calls_));
  } catch (const std::exception& e) {
    {
      const std::lock_guard lock(pending_mutex_);
      pending_.clear();
    }
    fail(first_line(e.what()));
  }
  be_in("");
}

std::string GlooTransport::missing(const std::string& what, Nanos deadline) {
  std::vector<std::shared_ptr<const Awaited>> all;
  for (int r = 0; r < world(); ++r) all.push_back(rendezvous_.await(key_of(what, r)));
  std::string names;
  for (int r = 0; r < world(); ++r)
    if (!all[static_cast<std::size_t>(r)]->wait_until(deadline)) names += (names.empty() ? "" : ", ") + name(r);
  return names;
}

// Ranks in the same call, by number, have to be in the same one. A rank that is a call ahead is no disagreement: it
// needed nothing more of the one that has not come. Returns who is behind this rank.
std::string GlooTransport::compare_calls() {
  const auto number = [](const std::string& where) { return std::stoull(where.substr(where.rfind("call ") + 5)); };
  std::map<std::uint64_t, std::pair<int, std::string>> first;  // by number
  std::string behind;
  for (int r = 0; r < world(); ++r) {
    const auto where = rendezvous_.await(key_of("stuck", r))->value();
    if (!where) continue;
    const auto& [other, theirs] = first.try_emplace(number(*where), r, *where).first->second;
    if (theirs != *where)
      throw CommError("[gloo] ranks disagree: " + name(other) + " is in " + theirs + ", " + name(r) + " is in " +
                      *where + "; their plans, or the order in which they run modules, differ");
    if (number(*where) < calls_) behind += (behind.empty() ? "" : ", ") + name(r) + " is still in " + *where;
  }
  return behind;
}

// Finds out why: somebody gave up; ranks disagree; ranks are missing; a connection broke.
void GlooTransport::fail(const std::string& why) {
  const std::string mine = where_;  // only this thread changes it
  check();
  // Everybody who is stuck says in what, and is given a while for it.
  const bool late = is_timeout(why);
  if (late) rendezvous_.set(key("late"), name(rank_));
  say_where();
  const std::string names = missing("stuck", steady_now() + std::clamp(timeout_ / 2, 100 * kMillisecond, kAgreement));
  const std::string behind = compare_calls();
  check();
  // Gloo closes the connections of a rank whose wait is over: to one that waits as long, that is a lost peer.
  if (!late && !late_->value())
    throw CommError("[gloo] " + name(rank_) + " lost a peer in " + mine + ": " + why + "; look at the other ranks");
  throw TimeoutError("[gloo] " + name(rank_) + " waited " + seconds(timeout_) + " in " + mine + ": " +
                     (!names.empty()    ? names + " has not arrived; look there"
                      : !behind.empty() ? behind + "; look there"
                                        : "all ranks are in it and it does not end; look at the network") +
                     ", or raise step_timeout");
}

void GlooTransport::fail_to_connect(const std::string& why) {
  const std::string names = missing("here", steady_now());
  const std::string text = "[gloo] " + name(rank_) + " did not reach all " + std::to_string(world()) +
                           " ranks of group '" + group_ +
                           "': " + (names.empty() ? why : names + " has not come (" + why + ")") +
                           "; start every rank, and name the network in GLOO_SOCKET_IFNAME if there are several";
  if (is_timeout(why)) throw TimeoutError(text);
  throw CommError(text);
}

Nanos GlooTransport::run(const CollectiveCall& call) {
  const Nanos arrival = steady_now();
  guarded(&call, [&](int tag) {
    const std::size_t piece = bytes_of(call.count, call.in_dtype);
    switch (call.kind) {
      case CollectiveKind::kAllGather:
        return all_gather(call.in, call.out, piece, tag);
      case CollectiveKind::kReduceScatter: {
        std::vector<std::size_t> begin;
        for (int r = 0; r <= world(); ++r) begin.push_back(static_cast<std::size_t>(r) * piece);
        return reduce(call, begin, call.out, call.accumulate, tag);
      }
      case CollectiveKind::kAllReduce:
        return all_reduce(call, tag);
      case CollectiveKind::kBroadcast:
        return broadcast(call, tag);
      case CollectiveKind::kBarrier:
        everybodys(0, tag);
        return;
    }
  });
  return arrival;
}

std::vector<std::uint64_t> GlooTransport::exchange(std::uint64_t value) {
  std::vector<std::uint64_t> values;
  guarded(nullptr, [&](int tag) { values = everybodys(value, tag); });
  return values;
}

std::vector<std::uint64_t> GlooTransport::everybodys(std::uint64_t value, int tag) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(world()), value);
  for (int r = 0; r < world(); ++r) {
    if (r != rank_) receive(r, &values[static_cast<std::size_t>(r)], sizeof value, tag);
  }
  for (int k = 1; k < world(); ++k) send((rank_ + k) % world(), &value, sizeof value, tag);
  finish();
  return values;
}

void GlooTransport::all_gather(const void* in, void* out, std::size_t piece, int tag) {
  std::vector<std::size_t> begin;
  for (int r = 0; r <= world(); ++r) begin.push_back(static_cast<std::size_t>(r) * piece);
  void* own = at_byte(out, begin[static_cast<std::size_t>(rank_)]);
  if (own != in && piece > 0) std::memcpy(own, in, piece);
  ring(out, begin, tag);
}

// Piece r of `full` is [begin[r], begin[r+1]) bytes; the own one is in place.
void GlooTransport::ring(void* full, const std::vector<std::size_t>& begin, int tag) {
  const int w = world(), next = (rank_ + 1) % w, previous = (rank_ + w - 1) % w;
  for (int step = 0; step < w - 1; ++step) {
    const auto out = static_cast<std::size_t>((rank_ - step + w) % w),
               in = static_cast<std::size_t>((rank_ - step - 1 + w) % w);
    receive(previous, at_byte(full, begin[in]), begin[in + 1] - begin[in], tag);
    send(next, at_byte(full, begin[out]), begin[out + 1] - begin[out], tag);
    finish();
  }
}

// Sums piece `rank` of everybody's input, in rank order, into `out`.
void GlooTransport::reduce(const CollectiveCall& call, const std::vector<std::size_t>& begin, void* out,
                           bool accumulate, int tag) {
  const auto me = static_cast<std::size_t>(rank_);
  const std::size_t piece = begin[me + 1] - begin[me], room = (piece + 63) / 64 * 64;
  scratch_.resize(room * static_cast<std::size_t>(world() - 1));
  std::vector<const void*> from(static_cast<std::size_t>(world()));
  from[me] = at_byte(call.in, begin[me]);
  for (int k = 1; k < world(); ++k) {
    const int r = (rank_ - k + world()) % world();
    void* p = scratch_.data() + static_cast<std::size_t>(k - 1) * room;
    from[static_cast<std::size_t>(r)] = p;
    receive(r, p, piece, tag);
  }
  for (int k = 1; k < world(); ++k) {
    const auto r = static_cast<std::size_t>((rank_ + k) % world());
    send(static_cast<int>(r), at_byte(call.in, begin[r]), begin[r + 1] - begin[r], tag);
  }
  finish();
  sum_ranks({from.data(), world(), call.in_dtype, out, call.out_dtype,
             static_cast<Count>(piece) / size_of(call.in_dtype), call.scale, accumulate, call.addend});
}

void GlooTransport::all_reduce(const CollectiveCall& call, int tag) {
  const Count segment = ((call.count + world() - 1) / world() + 63) / 64 * 64;
  std::vector<std::size_t> in_begin, out_begin;
  for (int r = 0; r <= world(); ++r) {
    in_begin.push_back(bytes_of(std::min(call.count, r * segment), call.in_dtype));
    out_begin.push_back(bytes_of(std::min(call.count, r * segment), call.out_dtype));
  }
  if (!call.accumulate) {
    reduce(call, in_begin, at_byte(call.out, out_begin[static_cast<std::size_t>(rank_)]), false, tag);
    return ring(call.out, out_begin, tag | 1);
  }
  std::vector<std::byte> sum(out_begin.back());
  CollectiveCall plain = call;
  plain.scale = 1.0f, plain.out_dtype = Dtype::kFloat32;
  const std::size_t factor = call.out_dtype == Dtype::kFloat32 ? 1 : 2;
  sum.resize(out_begin.back() * factor);
  for (std::size_t& b : out_begin) b *= factor;
  reduce(plain, in_begin, sum.data() + out_begin[static_cast<std::size_t>(rank_)], false, tag);
  ring(sum.data(), out_begin, tag | 1);
  const void* one[] = {sum.data()};
  sum_ranks({one, 1, Dtype::kFloat32, call.out, call.out_dtype, call.count, call.scale, true});
}

void GlooTransport::broadcast(const CollectiveCall& call, int tag) {
  const std::size_t n = bytes_of(call.count, call.in_dtype);
  if (rank_ != 0) {
    receive(0, call.out, n, tag);
    return finish();
  }
  if (call.out != call.in && n > 0) std::memcpy(call.out, call.in, n);
  for (int r = 1; r < world(); ++r) send(r, call.in, n, tag);
  finish();
}

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(Rendezvous& rendezvous, const std::string& group, int group_rank,
                                               std::vector<int> members, Nanos timeout, Nanos connecting) {
  return std::make_unique<GlooTransport>(rendezvous, group, group_rank, std::move(members), timeout,
                                         connecting > 0 ? connecting : timeout);
}

}  // namespace fsdp
