#include "fsdp/comm/local_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(ArenaAllocator, TakesTheFirstHoleThatFits) {
  ArenaAllocator arena(1024);
  EXPECT_EQ(arena.allocate(100), 0);
  EXPECT_EQ(arena.allocate(200), 128);
  EXPECT_EQ(arena.allocate(1), 384);
  arena.release(0);
  EXPECT_EQ(arena.allocate(300), 512);  // the hole at 0 is too small
  EXPECT_EQ(arena.allocate(128), 0);
  EXPECT_EQ(arena.used(), 128 + 256 + 128 + 384);
}

TEST(ArenaAllocator, ReleasedNeighboursMergeWhateverTheOrder) {
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  ArenaAllocator arena(3 * 256);
  for (const auto& order : orders) {
    for (Bytes k = 0; k < 3; ++k) ASSERT_EQ(arena.allocate(256), k * 256);
    EXPECT_EQ(arena.allocate(1), std::nullopt);
    for (const int k : order) arena.release(k * 256);
    EXPECT_EQ(arena.used(), 0);
    ASSERT_EQ(arena.allocate(3 * 256), 0);  // one hole again
    arena.release(0);
  }
}

TEST(SharedMemory, APeerReadsWhatARankWroteThroughThePublishedAddress) {
  const int fd = SharedMemory::create(2, 1 << 20);
  SharedMemory first(fd, 0, 2), second(fd, 1, 2);
  close(fd);
  auto* a = static_cast<int*>(first.allocate(64));
  auto* b = static_cast<int*>(second.allocate(64));
  *a = 7, *b = 8;
  EXPECT_EQ(*static_cast<const int*>(second.resolve(first.publish(a).value())), 7);
  EXPECT_EQ(*static_cast<const int*>(first.resolve(second.publish(b).value())), 8);
  int local = 0;
  EXPECT_FALSE(first.publish(&local).has_value());
}

TEST(SharedMemory, LeavesNothingBehind) {
  const std::size_t before = open_descriptors();
  {
    const int fd = SharedMemory::create(2, 1 << 20);
    const SharedMemory memory(fd, 0, 2);
    close(fd);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemory, MayBeLargerThanTheMachine) {
  const int fd = SharedMemory::create(4, Bytes{1} << 36);
  SharedMemory memory(fd, 3, 4);
  close(fd);
  auto* p = static_cast<char*>(memory.allocate(Bytes{1} << 35));
  p[0] = 1, p[(Bytes{1} << 35) - 1] = 2;
  EXPECT_EQ(p[0], 1);
  EXPECT_EQ(p[(Bytes{1} << 35) - 1], 2);
  memory.release(p);
  EXPECT_EQ(memory.allocate(Bytes{1} << 36), p) << "the whole arena is free again";
}

TEST(SharedMemory, AFullArenaSaysSo) {
  const int fd = SharedMemory::create(1, 4096);
  SharedMemory memory(fd, 0, 1);
  close(fd);
  EXPECT_THAT(
      [&] { memory.allocate(5000); },
      ThrowsMessage<EnvironmentError>(HasSubstr("the shared arena of rank 0 has no room for 4.88 KiB (0 B in use)")));
}

TEST(SharedMemory, RefusesAForeignDescriptorAndAnotherWorld) {
  const int null = open("/dev/null", O_RDONLY);
  EXPECT_THAT([&] { SharedMemory(null, 0, 2); },
              ThrowsMessage<ConfigError>(HasSubstr("is not the ranks' shared memory")));
  close(null);
  const int fd = SharedMemory::create(2, 4096);
  EXPECT_THAT([&] { SharedMemory(fd, 0, 3); },
              ThrowsMessage<ConfigError>(HasSubstr("rank 0 of 3: the shared memory was made for 2")));
  close(fd);
}

}  // namespace
}  // namespace fsdp
