// Which cores the ranks of a trial on this machine keep to. A rank that stays on its cores is not moved beside another
// one when other programs want a core: on a busy machine that is most of what makes equal runs differ.
#pragma once
#include <vector>

namespace harness {

using RankCores = std::vector<std::vector<int>>;  // by rank; empty: the system places them

// The cores that this process may use, by number.
std::vector<int> allowed_cores();

// As many cores of its own for each rank, in order; those that are left over belong to all. Empty when there are fewer
// cores than ranks.
RankCores cores_of_ranks(const std::vector<int>& cores, int ranks);

}  // namespace harness
