// Compute that meets communication shares SMs, memory bandwidth and power with it. How much longer it takes, from the
// runs of the same kernel, launched in the same shape, that met none. An estimate: such runs may still differ in work.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "fsdp/core/types.h"

namespace harness {

struct Slowdown {
  std::int64_t kernels = 0;  // runs that met communication and can be compared
  std::int64_t names = 0;    // different kernels among them
  fsdp::Nanos under_ns = 0;  // their time
  double alone_ns = 0;       // the time of as many runs that met none, by the mean of each kernel
  double ratio() const { return static_cast<double>(under_ns) / alone_ns; }
};

class KernelTimes {
 public:
  // One run of a kernel, and how much of it ran beside communication.
  void add(std::uint32_t name, std::uint32_t shape, fsdp::Nanos ns, fsdp::Nanos beside_communication);
  std::optional<Slowdown> slowdown() const;  // none if no kernel ran both ways

 private:
  struct Runs {
    std::int64_t under = 0, alone = 0;
    fsdp::Nanos under_ns = 0, alone_ns = 0;
  };
  std::map<std::uint64_t, Runs> runs_;  // by name and shape; those beyond the first 2^16 are left out
};

}  // namespace harness
