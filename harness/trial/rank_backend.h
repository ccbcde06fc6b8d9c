// RankBackend: what the ranks of one kind of device need beneath model and scheduler: the device, its collectives, and
// where tensors live. Made from the job; the ranks meet on the way.
#pragma once
#include <memory>
#include <string>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/rendezvous.h"
#include "fsdp/device/device.h"
#include "fsdp/device/ranges.h"
#include "fsdp/plan/unit_plan.h"
#include "harness/trial/messages.h"
#include "harness/trial/rank_progress.h"

namespace fsdp {
class TensorDevice;
}

namespace harness {

class RankBackend {
 public:
  virtual ~RankBackend() = default;
  virtual fsdp::Device& device() = 0;
  virtual fsdp::Collectives& collectives() = 0;
  virtual fsdp::TensorDevice* tensors() { return nullptr; }  // null: host memory
  // The meter enforces the budget; false: the device's own allocator does, and knows the peak.
  virtual bool meters_budget() const { return true; }
  // What the backend knows of a result: environment, and the peak where its allocator counts.
  virtual void complete(RankResult& result) = 0;
  // The allocator's figures in one clause, for an out-of-memory; may be empty.
  virtual std::string memory_figures() { return {}; }
  // After a failure, before buffers go: lanes write nothing any more.
  virtual void cancel() noexcept = 0;
  // Ends the peers' waits for this rank. Thread-safe.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// What a rank has before its world: both outlive it.
struct RankSurroundings {
  RankProgress& progress;
  fsdp::Rendezvous* rendezvous = nullptr;  // null: the ranks share memory
};

// `ranges` may be null and outlives the backend, as do the others.
std::unique_ptr<RankBackend> make_host_backend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges,
                                               RankSurroundings around);
// Opens the CUDA module, before anything asks LibTorch for CUDA. Throws EnvironmentError with the remedy where the
// program was built without, and where there is no GPU. rank_cuda.cc, or rank_no_cuda.cc.
std::unique_ptr<RankBackend> make_cuda_backend(const RankJob& job, const fsdp::UnitPlan& plan, fsdp::RangeSink* ranges,
                                               RankSurroundings around);

}  // namespace harness
