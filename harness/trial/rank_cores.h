// Which cores the ranks of a trial on this machine keep to. A rank that stays on its cores is not moved beside another
// one when other programs want a core: on a busy machine that is most of what makes equal runs differ.
#pragma once
#include <string>
#include <vector>

namespace harness {

using RankCores = std::vector<std::vector<int>>;  // by rank; empty: the system places them

// The processors that this process may use, by number; empty where the system does not say.
std::vector<int> allowed_cores();

// `processors` by the physical core that they are threads of, neighbours on a socket side by side. One that the system
// says nothing of is a core of its own.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& processors,
                                             const std::string& root = "/sys/devices/system/cpu");

// As many physical cores of its own for each rank, in order; those that are left over belong to all. Empty when there
// are fewer physical cores than ranks.
RankCores cores_of_ranks(const std::vector<std::vector<int>>& physical, int ranks);

}  // namespace harness
