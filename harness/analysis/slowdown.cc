#include "harness/analysis/slowdown.h"

namespace harness {

void KernelTimes::add(std::uint32_t name, fsdp::Nanos ns, fsdp::Nanos beside_communication) {
  if (name >= runs_.size()) runs_.resize(name + std::size_t{1});
  Runs& r = runs_[name];
  const bool under = beside_communication > 0;
  (under ? r.under : r.alone) += 1;
  (under ? r.under_ns : r.alone_ns) += ns;
}

std::optional<Slowdown> KernelTimes::slowdown() const {
  Slowdown s;
  for (const Runs& r : runs_) {
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
