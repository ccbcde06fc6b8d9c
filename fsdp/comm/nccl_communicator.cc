#include "fsdp/comm/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp {
namespace {
constexpr int kSpins = 100;
constexpr Nanos kSleep = 20'000, kWatchInterval = 2'000'000;
}  // namespace

NcclCommunicator::NcclCommunicator(NcclLibrary& nccl, const NcclLibrary::UniqueId& id, Place place, Setup setup)
    : nccl_(nccl), place_(place), setup_(std::move(setup)) {
  try {
    settle(nccl_.comm_init(&comm_, place_.ranks, id, place_.rank, setup_.config), "ncclCommInitRankConfig");
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::NcclCommunicator(NcclCommunicator& parent, int color, int key, Place place, Setup setup)
    : nccl_(parent.nccl_), place_(place), setup_(std::move(setup)) {
  try {
    // The parent says when the call is complete; the new handle is there only then, and may still be at work.
    parent.settle(nccl_.comm_split(parent.comm_, color, key, &comm_, setup_.config), "ncclCommSplit");
    settle(NcclLibrary::kInProgress, "ncclCommSplit");
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() { abort(); }

void NcclCommunicator::settle(NcclLibrary::Status status, const char* call) {
  if (status == NcclLibrary::kSuccess) return;
  if (status != NcclLibrary::kInProgress) fail(status, call);
  wait(call, comm_);
}

void NcclCommunicator::wait(const char* call, NcclLibrary::Comm asked) {
  const Nanos deadline = steady_now() + setup_.timeout;
  Nanos watched = steady_now();
  for (int asked_times = 0;; ++asked_times) {
    NcclLibrary::Status state = NcclLibrary::kInProgress;
    if (const auto s = nccl_.comm_async_error(asked, &state); s != NcclLibrary::kSuccess)
      fail(s, "ncclCommGetAsyncError");
    if (state == NcclLibrary::kSuccess) return;
    if (state != NcclLibrary::kInProgress) fail(state, call);
    const Nanos now = steady_now();
    if (now >= deadline) {
      throw TimeoutError("[nccl] " + name() + ": " + call + " of rank " + std::to_string(rank()) +
                         " is not complete after " + std::to_string(setup_.timeout / 1'000'000) +
                         " ms; a rank is missing, or the network interface is the wrong one (NCCL_SOCKET_IFNAME)");
    }
    if (now >= watched + kWatchInterval) {
      watched = now;
      if (setup_.watch) setup_.watch();
    }
    if (asked_times >= kSpins) sleep_until(std::min(deadline, now + kSleep));
  }
}

void NcclCommunicator::check() {
  if (comm_ == nullptr) return;
  NcclLibrary::Status state = NcclLibrary::kSuccess;
  if (const auto s = nccl_.comm_async_error(comm_, &state); s != NcclLibrary::kSuccess)
    fail(s, "ncclCommGetAsyncError");
  if (state != NcclLibrary::kSuccess && state != NcclLibrary::kInProgress) fail(state, "ncclCommGetAsyncError");
}

void NcclCommunicator::fail(NcclLibrary::Status status, const char* call) const {
  throw CommError("[nccl] " + name() + ": " + call + ": " + nccl_.error_text(status, comm_) +
                  "; NCCL_DEBUG=INFO shows what NCCL saw");
}

void NcclCommunicator::close() noexcept {
  if (comm_ == nullptr) return;
  try {
    settle(nccl_.comm_finalize(comm_), "ncclCommFinalize");
    nccl_.comm_destroy(comm_);
    comm_ = nullptr;
  } catch (...) {
    abort();
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) nccl_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace fsdp
