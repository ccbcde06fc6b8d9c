#include "harness/trial/rank_cores.h"

#include <sched.h>

#include <array>
#include <fstream>
#include <map>
#include <utility>

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

std::vector<std::vector<int>> physical_cores(const std::vector<int>& processors, const std::string& root) {
  // (package, die, core), or the processor alone. Cores of several dies of a package may have the same number.
  std::map<std::array<int, 4>, std::vector<int>> cores;
  for (const int processor : processors) {
    const auto read = [&](const char* name) {
      std::ifstream in(root + "/cpu" + std::to_string(processor) + "/topology/" + name);
      int value = -1;
      return in >> value ? value : -1;
    };
    const int package = read("physical_package_id"), core = read("core_id");
    const bool known = package >= 0 && core >= 0;
    cores[known ? std::array{package, read("die_id"), core, -1} : std::array{-1, -1, -1, processor}].push_back(
        processor);
  }
  std::vector<std::vector<int>> out;
  for (auto& [key, threads] : cores) out.push_back(std::move(threads));
  return out;
}

RankCores cores_of_ranks(const std::vector<std::vector<int>>& physical, int ranks) {
  RankCores out;
  const auto n = static_cast<std::size_t>(ranks), share = physical.size() / n;
  if (share == 0) return out;
  const auto add = [&](std::vector<int>& cores, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) cores.insert(cores.end(), physical[i].begin(), physical[i].end());
  };
  for (std::size_t rank = 0; rank < n; ++rank) {
    add(out.emplace_back(), rank * share, (rank + 1) * share);
    add(out.back(), n * share, physical.size());
  }
  return out;
}

}  // namespace harness
