// Plays two steps of two units on the host device: what a rank does, without its tensors. Ranges only if the
// environment wants them. Prints "ranges" or "no ranges". With an argument: one range of a unit that was not named, of
// 77 bytes.
#include <iostream>

#include "fsdp/device/host/host_device.h"
#include "harness/trace/nvtx_ranges.h"

namespace {

using fsdp::Pass;
using fsdp::SpanKind;

void play(fsdp::HostDevice& device, int step) {
  device.begin_step(step);
  for (fsdp::UnitId unit = 0; unit < 2; ++unit) {
    const auto bytes = static_cast<fsdp::Bytes>(1024) << unit;
    device.submit(fsdp::Lane::kAllGather, {SpanKind::kAllGather, unit, Pass::kForward, bytes}, [] {});
    device.wait(fsdp::Lane::kCompute, device.record(fsdp::Lane::kAllGather));
    device.compute_context({SpanKind::kCompute, unit, Pass::kForward, 0});
    device.host_context();
  }
  device.submit(fsdp::Lane::kReduceScatter, {SpanKind::kReduceScatter, 1, Pass::kBackward, 2048}, [] {});
  device.compute_context({SpanKind::kOptimizer, fsdp::kNoUnit, Pass::kOptimizer, 0});
  device.drain();
  device.end_step();
}

}  // namespace

int main(int argc, char**) {
  const auto ranges = harness::wanted_nvtx_ranges({"root", "model.layers.0"});
  std::cout << (ranges ? "ranges" : "no ranges") << std::endl;
  fsdp::HostDevice::Options options;
  options.ranges = ranges.get();
  options.shared_channel = false;
  fsdp::HostDevice device(options);
  play(device, 0);
  if (ranges) ranges->begin_measured();
  play(device, 1);
  if (ranges) ranges->end_measured();
  if (ranges && argc > 1) {
    ranges->push({SpanKind::kCompute, 7, Pass::kForward, 77}, 0);
    ranges->pop();
  }
  return 0;
}
