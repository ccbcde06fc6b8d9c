#include <future>

#include "fsdp/core/errors.h"
#include "fsdp/device/cuda/cuda_device.h"
#include "fsdp/device/host/host_device.h"
#include "fsdp/device/virtual/virtual_device.h"
#include "tests/device/device_suite.h"
#include "tests/testing/fake_cuda.h"

namespace fsdp::testing {
namespace {

class HostBench final : public DeviceBench {
 public:
  HostBench(Nanos timeout, bool shared) : device_({.timeout = timeout, .shared_channel = shared}) {}
  Device& device() override { return device_; }
  void put(Lane lane, const WorkTag& tag, std::function<void()> work) override {
    device_.submit(lane, tag, std::move(work));
  }
  void put_failing(Lane lane, const WorkTag& tag) override {
    device_.submit(lane, tag, [] { throw CommError("[test] peer gone"); });
  }
  void compute(std::function<void()> work) override { work(); }
  void hold(Lane lane, const WorkTag& tag) override {
    device_.submit(lane, tag, [open = open_] { open->get_future().wait(); });
  }
  void let_go(Lane) override { open_->set_value(); }

 private:
  std::shared_ptr<std::promise<void>> open_ = std::make_shared<std::promise<void>>();
  HostDevice device_;
};

class VirtualBench final : public DeviceBench {
 public:
  Device& device() override { return device_; }
  void put(Lane lane, const WorkTag& tag, std::function<void()> work) override {
    device_.charge(lane, tag, 5);
    work();
  }
  void put_failing(Lane, const WorkTag&) override {}
  void compute(std::function<void()> work) override {
    device_.charge(Lane::kCompute, device_.context(), 7);
    work();
  }
  void hold(Lane, const WorkTag&) override {}
  void let_go(Lane) override {}

 private:
  VirtualDevice device_{1};
};

class CudaBench final : public DeviceBench {
 public:
  explicit CudaBench(Nanos timeout) : fake_(1), device_(fake_.runtime(0), {.timeout = timeout}) {}
  Device& device() override { return device_; }
  void put(Lane lane, const WorkTag& tag, std::function<void()> work) override {
    device_.submit(lane, tag, [&](CudaRuntime::Stream s) { fake_.enqueue(0, s, "work", {}, {}, std::move(work)); });
  }
  void put_failing(Lane lane, const WorkTag& tag) override {
    device_.submit(lane, tag, [](CudaRuntime::Stream) { throw CommError("[test] peer gone"); });
  }
  void compute(std::function<void()> work) override {
    fake_.enqueue(0, device_.stream(Lane::kCompute), "compute", {}, {}, std::move(work));
  }
  void hold(Lane lane, const WorkTag& tag) override {
    fake_.hold(0, device_.stream(lane));
    device_.submit(lane, tag, [&](CudaRuntime::Stream s) { fake_.enqueue(0, s, "work", {}, {}); });
  }
  void let_go(Lane lane) override { fake_.let_go(0, device_.stream(lane)); }

 private:
  FakeCuda fake_;
  CudaDevice device_;
};

}  // namespace

std::vector<DeviceWorld> devices_under_test() {
  return {{"HostOneChannel", [](Nanos t) { return std::make_unique<HostBench>(t, true); }},
          {"HostTwoChannels", [](Nanos t) { return std::make_unique<HostBench>(t, false); }},
          {"Cuda", [](Nanos t) { return std::make_unique<CudaBench>(t); }},
          {"Virtual", [](Nanos) { return std::make_unique<VirtualBench>(); }, false}};
}

}  // namespace fsdp::testing
