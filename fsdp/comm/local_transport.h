// Collectives between ranks of one machine through memory that all of them can read: one algorithm for ranks as threads
// and ranks as processes. Plain C++.
//
// A call is one meeting or a few. Small inputs are copied to the board's stage: after the meeting everybody reads the
// stages, and nobody has to wait for readers. Large inputs are read where they lie, if peers can see them, else through
// a copy in the rank's own arena; a last meeting then says that nobody reads any more.
#pragma once
#include <memory>
#include <vector>

#include "fsdp/comm/local_memory.h"
#include "fsdp/comm/transport.h"

namespace fsdp {

// Ranks as threads. One board is one communicator; it lives as long as a transport uses it.
class ThreadBoard;
std::shared_ptr<ThreadBoard> make_thread_board(int world);
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadBoard> board, int rank, Nanos timeout);
// `members`: the ranks' names in messages, for a group that is part of the world.
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadBoard> board, int rank, std::vector<int> members,
                                                Nanos timeout);

// Ranks as processes. The starter of the ranks calls this once, lets them inherit the descriptor, and closes it.
int create_shared_memory(int world, Bytes arena_bytes);
// In each rank's process, once. All its transports share the mapping and the arena.
std::shared_ptr<SharedMemory> attach_shared_memory(int fd, int rank, int world);
// One communicator per channel, 0 <= channel < SharedMemory::kChannels; groups that are disjoint need channels of their
// own. The second form is for a group: `members` are the ranks in it, in order, and this process is
// members[group_rank].
std::unique_ptr<Transport> attach_local_transport(std::shared_ptr<SharedMemory> memory, int rank, int world,
                                                  Nanos timeout, int channel);
std::unique_ptr<Transport> attach_local_transport(std::shared_ptr<SharedMemory> memory, int group_rank,
                                                  std::vector<int> members, Nanos timeout, int channel);

}  // namespace fsdp
