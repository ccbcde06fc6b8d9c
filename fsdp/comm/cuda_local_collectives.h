// CudaLocalCollectives: collectives between rank threads that share one GPU. One GPU stands for many: the bytes really
// move, between buffers of one memory. Ranks meet on the host when a call is enqueued (that is where enqueue() waits
// for its peers, with a deadline), tell each other addresses and events, and put copies and sums on their lanes.
// Sums run in rank order in fp32 and are rounded once, as on the host. Rows made with it are marked emulated.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/collectives.h"
#include "fsdp/comm/local_board.h"
#include "fsdp/device/cuda/cuda_buffers.h"
#include "fsdp/device/cuda/cuda_device.h"
#include "fsdp/device/cuda/lane_memory.h"

namespace fsdp {

// Where the ranks of one communicator meet. It lives as long as somebody uses it, and with it the ranks' events: a peer
// may still wait for one whose rank has left.
class CudaMeeting {
 public:
  // Of one rank; they alternate between two halves, as the board's records do.
  struct Events {
    explicit Events(CudaRuntime& runtime);
    CudaEvent ready[2], done[2];
  };
  explicit CudaMeeting(int ranks);
  int ranks() const { return ranks_; }
  void* memory() { return memory_.get(); }
  Events& make_events(CudaRuntime& runtime);  // thread-safe

 private:
  struct Free {
    void operator()(void* p) const;
  };
  const int ranks_;
  std::unique_ptr<void, Free> memory_;
  std::mutex mutex_;
  std::deque<Events> events_;
};

// One of each communicator that the plan needs; as HostTransports.
struct CudaMeetings {
  std::shared_ptr<CudaMeeting> world;  // of all ranks
  std::vector<std::pair<Communicator, std::shared_ptr<CudaMeeting>>> others;
};

class CudaLocalCollectives final : public Collectives {
 public:
  // `device` outlives this.
  CudaLocalCollectives(CudaDevice& device, const CudaMeetings& meetings, int rank, Nanos timeout);
  ~CudaLocalCollectives() override;
  CudaLocalCollectives(const CudaLocalCollectives&) = delete;
  CudaLocalCollectives& operator=(const CudaLocalCollectives&) = delete;

  int rank() const override { return rank_; }
  int world() const override { return parties_.front()->board.world(); }
  void enqueue(Lane lane, const CollectiveCall& call) override;
  std::vector<std::uint64_t> exchange(std::uint64_t value) override;
  void* allocate(Bytes n) override;
  void release(void* p) noexcept override;
  void* take(Bytes n, Lane writer) { return full_->take(n, writer); }
  void give(void* p) noexcept { full_->give(p); }

  // After a failure: waits until the lanes are idle. Nothing is issued any more.
  void cancel() noexcept;
  void abort(const std::string& reason) noexcept;

 private:
  // This rank's part in one communicator.
  struct Party {
    Party(Communicator communicator, std::shared_ptr<CudaMeeting> meeting, CudaRuntime& runtime, int rank,
          std::vector<int> members, Nanos timeout);
    const Communicator communicator;
    std::shared_ptr<CudaMeeting> meeting;
    LocalBoard board;
    CudaMeeting::Events& events;
    std::uint64_t calls = 0;
  };
  void join(Communicator c, const std::shared_ptr<CudaMeeting>& meeting, int world);
  Party& party(Communicator c) const;
  void run(Party& p, const CollectiveCall& call, Lane lane, CudaRuntime::Stream stream);
  void sum(const std::vector<const void*>& in, const CollectiveCall& call, void* out, Dtype out_dtype, float scale,
           bool accumulate, CudaRuntime::Stream stream);
  std::vector<std::uint64_t> meet(Party& p, std::uint64_t value);

  CudaDevice& device_;
  const int rank_;
  const Nanos timeout_;
  const int exceptions_at_birth_;
  std::vector<std::unique_ptr<Party>> parties_;  // of all ranks first
  LaneMemory compute_memory_, gather_memory_;
  std::array<std::unique_ptr<LaneScratch>, kLaneCount> scratch_;
  std::unique_ptr<CudaBuffers> full_;
};

}  // namespace fsdp
