// libnvidia-ml without a driver. FAKE_NVML in the environment says what it is, words apart by spaces:
//   gpus=N     number of GPUs (default 2)            init=R     nvmlInit gives R
//   old        no energy counter, no time counters   throttle   every reading says: slowed for power
//   pcie       no NVLink: GPUs share a host bridge   lost=I     GPU I cannot be asked for anything but its handle
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string words() {
  const char* text = std::getenv("FAKE_NVML");
  return std::string(" ") + (text ? text : "") + " ";
}
bool has(const char* word) { return words().find(std::string(" ") + word + " ") != std::string::npos; }
int number(const char* name, int otherwise) {
  const std::string all = words(), key = std::string(" ") + name + "=";
  const auto at = all.find(key);
  return at == std::string::npos ? otherwise : std::atoi(all.c_str() + at + key.size());
}
// Handles are index + 1.
int index_of(void* device) { return static_cast<int>(reinterpret_cast<long>(device)) - 1; }
bool lost(void* device) { return index_of(device) == number("lost", -1); }
std::atomic<int> reads{0};

int give(void* device, unsigned* out, unsigned value) {
  if (lost(device)) return 15;
  *out = value;
  return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int nvmlInit_v2() { return number("init", 0); }
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return std::snprintf(text, size, "580.65.06") > 0 ? 0 : 1;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = number("cuda", 13000);
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = static_cast<unsigned>(number("gpus", 2));
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  *device = reinterpret_cast<void*>(static_cast<long>(i) + 1);
  return 0;
}
EXPORT int nvmlDeviceGetName(void* d, char* text, unsigned size) {
  return lost(d) ? 15 : (std::snprintf(text, size, "NVIDIA H100 80GB HBM3"), 0);
}
EXPORT int nvmlDeviceGetUUID(void* d, char* text, unsigned size) {
  return lost(d) ? 15 : (std::snprintf(text, size, "GPU-%d", index_of(d)), 0);
}
EXPORT int nvmlDeviceGetMemoryInfo(void* d, unsigned long long* memory) {
  if (lost(d)) return 15;
  memory[0] = 85'899'345'920ull, memory[1] = memory[0], memory[2] = 0;
  return 0;
}
EXPORT int nvmlDeviceGetClockInfo(void* d, int type, unsigned* mhz) { return give(d, mhz, type == 2 ? 2619 : 1755); }
EXPORT int nvmlDeviceGetMaxClockInfo(void* d, int, unsigned* mhz) { return give(d, mhz, 1980); }
EXPORT int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { return give(d, mw, 650'000); }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* d, unsigned* mw) { return give(d, mw, 700'000); }
EXPORT int nvmlDeviceGetTemperature(void* d, int, unsigned* c) { return give(d, c, 61); }
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void* d, unsigned long long* reasons) {
  if (lost(d)) return 15;
  *reasons = has("throttle") ? 0x4 : 0;
  return 0;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* mj) {
  if (lost(d) || has("old")) return 3;
  *mj = 1000ull * static_cast<unsigned long long>(++reads);
  return 0;
}
EXPORT int nvmlDeviceGetViolationStatus(void* d, int, unsigned long long* time) {
  if (lost(d) || has("old")) return 3;
  time[0] = time[1] = 0;
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkState(void* d, unsigned link, int* state) {
  if (lost(d) || has("pcie") || link >= 18) return 3;
  *state = 1;
  return 0;
}
EXPORT int nvmlDeviceGetMigMode(void* d, unsigned* now, unsigned* next) {
  if (lost(d)) return 15;
  *now = *next = has("mig");
  return 0;
}
EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = has("pcie") ? 5 : 0;
  return 0;
}
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 30;
  return 0;
}
