// NvtxRanges: a RangeSink that makes NVTX ranges (nvtx_names.h says which). Needs no library and no GPU: a tool is
// injected into the process by NVTX itself, and without one a range costs a few nanoseconds.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fsdp/device/ranges.h"

namespace harness {

class NvtxRanges final : public fsdp::RangeSink {
 public:
  // Registers the names of all ranges of these units, so that none is made while steps run.
  explicit NvtxRanges(const std::vector<std::string>& unit_names);
  ~NvtxRanges() override;
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  void push(const fsdp::WorkTag& tag, int step) noexcept override;
  void pop() noexcept override;

  // The range `measured`, from any thread; begin again or end without begin does nothing.
  void begin_measured() noexcept;
  void end_measured() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// NvtxRanges if the environment of this process wants them (ranges_wanted), else null.
std::unique_ptr<NvtxRanges> wanted_nvtx_ranges(const std::vector<std::string>& unit_names);

}  // namespace harness
