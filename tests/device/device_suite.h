// One conformance suite for every Device. A program that links device_suite.cc defines devices_under_test().
#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fsdp/device/device.h"

namespace fsdp::testing {

// A device and what puts work on its lanes.
class DeviceBench {
 public:
  virtual ~DeviceBench() = default;
  virtual Device& device() = 0;
  // Work on a comm lane; runs when the lane comes to it.
  virtual void put(Lane lane, const WorkTag& tag, std::function<void()> work) = 0;
  // Work that fails, and poisons the lane: when it is issued, or when it runs.
  virtual void put_failing(Lane lane, const WorkTag& tag) = 0;
  // Work of the compute lane.
  virtual void compute(std::function<void()> work) = 0;
  // Work that does not end until let_go(); only where lanes run beside the host.
  virtual void hold(Lane lane, const WorkTag& tag) = 0;
  virtual void let_go(Lane lane) = 0;
};

struct DeviceWorld {
  std::string name;
  std::function<std::unique_ptr<DeviceBench>(Nanos timeout)> make;
  bool lanes_run = true;     // beside the host, and can fail; false: the virtual world
  std::string why_not = {};  // empty: it runs here
};
inline void PrintTo(const DeviceWorld& world, std::ostream* out) { *out << world.name; }  // in names of tests
std::vector<DeviceWorld> devices_under_test();

}  // namespace fsdp::testing
