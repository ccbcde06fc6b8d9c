// RankWorld with ranks as threads of this process, each with settings of its own.
#include "harness/trial/rank_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "fsdp/comm/local_transport.h"
#include "fsdp/core/errors.h"

namespace harness {
namespace {
using testing::HasSubstr;

CaseSettings tiny() {
  CaseSettings c;
  apply_setting(c, "set", "layers=2,dim=64,heads=2,kv_heads=2,ffn=96,vocab=128");
  c.seq = 16;
  return c;
}

TEST(RankWorld, RanksThatIssueDifferentCollectivesSayWhoAndWhat) {
  const int fd = fsdp::create_shared_memory(2, fsdp::Bytes{1} << 26);
  const CaseSettings c = tiny();
  std::string reasons[2];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RankJob job{c, rank, 2, -1, fd};
      if (rank == 1) apply_setting(job.settings, "wrap", "root");
      RankProgress progress;
      std::unique_ptr<RankWorld> world;
      try {
        world = std::make_unique<RankWorld>(job, progress);
        world->step();
      } catch (const fsdp::CommError& e) {
        reasons[rank] = e.what();
        if (world) world->abort(e.what());
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  close(fd);
  for (const std::string& reason : reasons) {
    EXPECT_THAT(reason, HasSubstr("rank 0"));
    EXPECT_THAT(reason, HasSubstr("rank 1"));
    EXPECT_THAT(reason, HasSubstr("all_gather"));
  }
}

}  // namespace
}  // namespace harness
