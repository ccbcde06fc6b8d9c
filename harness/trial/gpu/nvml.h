// What NVIDIA's management library (NVML, libnvidia-ml.so.1, part of the driver) says of this machine's GPUs. Loaded at
// run time with declarations of our own; a machine without it, or a call that a GPU does not have, is an absent value
// and never an error.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

// What does not change while a trial runs.
struct GpuFacts {
  std::string name, uuid;
  std::optional<fsdp::Bytes> memory_bytes;
  std::optional<unsigned> max_sm_mhz, power_limit_mw;
  std::optional<unsigned> nvlinks;  // that are up
  std::optional<bool> mig;          // split into instances
};

// One moment. Counters run on from the driver's start.
struct GpuReading {
  std::optional<unsigned> sm_mhz, memory_mhz, power_mw, temperature_c;
  std::optional<std::uint64_t> throttle_reasons;  // bits of nvmlClocksEventReasons
  std::optional<std::uint64_t> energy_mj;         // counter
  std::optional<std::uint64_t> power_capped_ns,
      heat_capped_ns;  // counters: time below the wanted clock for this reason
};

// "power cap", "heat", ...: the reasons that cost speed; idling and set clocks are none. Empty: not slowed.
std::vector<std::string> throttle_words(std::uint64_t reasons);

class Nvml {
 public:
  // Of SHARDSCOPE_NVML=PATH, else libnvidia-ml.so.1. Null, and a sentence in `why` with the remedy, when there is none
  // or it finds no driver. A GPU that cannot be asked is left out.
  static std::unique_ptr<Nvml> open(std::string& why);
  virtual ~Nvml() = default;

  virtual std::string driver() const = 0;               // "580.65.06"; empty: not told
  virtual std::optional<int> cuda_version() const = 0;  // of the driver: 13000 is 13.0
  virtual const std::vector<GpuFacts>& gpus() const = 0;
  // Thread-safe.
  virtual GpuReading read(std::size_t gpu) const = 0;
  // "NVLink", or the nearest thing that two GPUs share, in the words of `nvidia-smi topo -m`: PIX PXB PHB NODE SYS;
  // empty: not told.
  virtual std::string link(std::size_t a, std::size_t b) const = 0;
};

// "all NVLink", "NVLink 0-1 2-3, SYS 0-2 ...": the links of all pairs in one line; empty for one GPU.
std::string topology_text(const Nvml& nvml);

}  // namespace harness
