// What the GPUs did while a trial ran: a thread reads NVML five times a second; counters are taken at both ends. The
// outcome is fields of the row's environment and warnings.
//
//   gpu, gpu_count          names (different ones joined by " + ") and their number: must be equal in a comparison
//   gpu_driver, gpu_topology  should be
//   machine.gpu0.sm_mhz     "1755..1980 of 1980": least and most while the GPU was busy (above idle clocks), of the
//   highest machine.gpu0.memory_mhz, .power_w (mean, by the energy counter), .temperature_c (highest), .throttled
//   ("power cap 12 %")
// Absent values are absent keys; without NVML there are none at all. Fields of "machine." never decide a comparison.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/trial/gpu/nvml.h"

namespace harness {

struct GpuReport {
  std::map<std::string, std::string> fields;
  std::vector<std::string> warnings;  // "throttled: GPU 0 was slowed ..."
};

// Of one GPU, from first to last. `elapsed_ns` of the whole. Pure.
struct GpuHistory {
  std::size_t index = 0;
  GpuFacts facts;
  std::vector<GpuReading> readings;
};
void report_gpu(const GpuHistory& gpu, fsdp::Nanos elapsed_ns, GpuReport& out);

class GpuWatch {
 public:
  // Null: this machine's, if it has any; a machine without costs nothing. Read by a thread of its own until finish().
  explicit GpuWatch(std::unique_ptr<Nvml> nvml = nullptr);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  GpuReport finish();  // once

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
