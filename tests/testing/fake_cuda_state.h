// What FakeCuda is made of: queues, clocks, memory, communicators. One lock over all of it. Private to fake_cuda*.cc.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "tests/testing/fake_cuda.h"

namespace fsdp::testing {

using Clock = std::map<int, std::uint64_t>;  // stream -> ticks seen
void join(Clock& into, const Clock& other);

struct FakeEvent {
  int rank = 0;
  bool timed = false;
  std::uint64_t recordings = 0, reached = 0;  // record calls issued; executed
  Clock clock;                                // of the last recording
  Nanos at = 0;                               // when it was reached
};

struct FakeWork {
  std::function<bool()> ready;  // may it happen? empty: yes
  std::function<void()> run;
};

struct FakeStream {
  int id = 0, rank = 0;
  bool held = false;
  Clock clock;
  std::deque<FakeWork> queue;
};

struct Access {
  int stream = 0;
  std::uint64_t tick = 0;
  bool write = false;
  const std::byte *begin = nullptr, *end = nullptr;
  std::string what;
};

struct FakeBlock {
  std::vector<std::byte> memory;
  int rank = 0;
  CudaRuntime::Stream stream = nullptr;
  bool freed = false;
  std::vector<Access> accesses;
};

// One call of a communicator: what each rank has come with.
struct FakeCall {
  struct Part {
    std::string signature;
    const void* in = nullptr;
    void* out = nullptr;
  };
  std::map<int, Part> parts;
  bool done = false;
};

struct FakeGroup {
  int ranks = 0;
  std::set<int> joined;
  std::map<int, std::uint64_t> issued, passed;  // calls by rank
  std::map<std::uint64_t, FakeCall> board;
  std::map<int, std::uint64_t> splits;
  struct Split {
    std::map<int, std::pair<int, int>> places;  // rank -> color, key
    std::map<int, std::shared_ptr<FakeGroup>> groups;
  };
  std::map<std::uint64_t, Split> split_board;
};

struct FakeComm {
  std::shared_ptr<FakeGroup> group;
  int rank = 0, device_rank = 0;  // in the group; of the world
  bool aborted = false;
  Clock clock;  // its calls run one after the other, whatever streams they are on
  // A split under way: complete when all ranks of the parent have asked.
  std::shared_ptr<FakeGroup> parent;
  std::uint64_t split = 0;
  int place = 0;
};

struct FakeCuda::State {
  State(int n, std::uint32_t seed)
      : ranks(n), random(seed), host(static_cast<std::size_t>(n)), calls(host.size()), fail(host.size()) {
    for (int r = 0; r < n; ++r) add_stream(r);  // the default stream of each rank
  }

  // Returns true if the call is to fail.
  bool injected(int rank, const char* name);
  FakeStream* stream(int rank, CudaRuntime::Stream s, const char* call);
  std::shared_ptr<FakeEvent> event(CudaRuntime::EventHandle e, const char* call);
  std::shared_ptr<FakeComm> comm(NcclLibrary::Comm c, const char* call);
  FakeStream* add_stream(int rank);
  // Issues work on a stream: ticks its clock, checks the accesses.
  void issue(FakeStream& s, const std::string& what, const std::vector<Range>& reads, const std::vector<Range>& writes,
             FakeWork work);
  void check(FakeStream& s, const std::string& what, const Range& range, bool write);
  FakeBlock* block_of(const void* p);
  void fault(const std::string& text) {
    if (std::find(faults.begin(), faults.end(), text) == faults.end()) faults.push_back(text);
  }
  void* add_block(int rank, std::size_t bytes, CudaRuntime::Stream stream);
  void give_back(int rank, void* memory, CudaRuntime::Stream on, const char* call);
  Bytes allocated(int rank) const;
  void pump();

  const int ranks;
  std::mt19937 random;
  mutable std::mutex mutex;
  std::map<CudaRuntime::Stream, std::unique_ptr<FakeStream>> streams;
  std::vector<FakeStream*> default_streams;
  std::map<void*, std::shared_ptr<FakeEvent>> events;
  std::map<const std::byte*, FakeBlock> blocks;  // by begin
  std::map<void*, std::shared_ptr<FakeComm>> comms;
  std::map<std::string, std::shared_ptr<FakeGroup>> groups_by_id;
  struct Registration {
    void *memory = nullptr, *comm = nullptr;
  };
  std::map<void*, Registration> registrations;  // a communicator takes its own along
  std::vector<NcclLibrary::Config> configs;
  std::vector<CudaRuntime::PacedCopy> paced;
  std::vector<Clock> host;
  std::vector<std::map<std::string, int>> calls;  // by name, of each rank
  std::vector<std::pair<std::string, int>> fail;
  std::vector<std::string> faults;
  std::string failed;
  int next_stream = 0, ids = 0, nccl_version = 22809;
  Bytes capacity = -1;
};

}  // namespace fsdp::testing
