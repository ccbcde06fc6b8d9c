#include "harness/analysis/slowdown.h"

namespace harness {

namespace {
constexpr std::size_t kMostKernels = 1 << 16;
}

void KernelTimes::add(std::uint32_t name, std::uint32_t shape, fsdp::Nanos ns, fsdp::Nanos beside_communication) {
  const std::uint64_t key = std::uint64_t{name} << 32 | shape;
  auto it = runs_.find(key);
  if (it == runs_.end()) {
    if (runs_.size() >= kMostKernels) return;
    it = runs_.emplace(key, Runs{}).first;
  }
  Runs& r = it->second;
  const bool under = beside_communication > 0;
  (under ? r.under : r.alone) += 1;
  (under ? r.under_ns : r.alone_ns) += ns;
}

std::optional<Slowdown> KernelTimes::slowdown() const {
  Slowdown s;
  for (const auto& [key, r] : runs_) {
    if (r.under == 0 || r.alone == 0) continue;
    ++s.names;
    s.kernels += r.under;
    s.under_ns += r.under_ns;
    s.alone_ns += static_cast<double>(r.alone_ns) / static_cast<double>(r.alone) * static_cast<double>(r.under);
  }
  if (s.kernels == 0) return std::nullopt;
  return s;
}

}  // namespace harness
