#include "harness/trial/rank_cores.h"

#include <sched.h>

namespace harness {

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

RankCores cores_of_ranks(const std::vector<int>& cores, int ranks) {
  RankCores out;
  const auto n = static_cast<std::size_t>(ranks), share = cores.size() / n;
  if (share == 0) return out;
  for (std::size_t rank = 0; rank < n; ++rank) {
    out.emplace_back(cores.begin() + static_cast<std::ptrdiff_t>(rank * share),
                     cores.begin() + static_cast<std::ptrdiff_t>((rank + 1) * share));
    out.back().insert(out.back().end(), cores.begin() + static_cast<std::ptrdiff_t>(n * share), cores.end());
  }
  return out;
}

}  // namespace harness
