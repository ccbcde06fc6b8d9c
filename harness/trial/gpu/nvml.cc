#include "harness/trial/gpu/nvml.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <utility>

namespace harness {
namespace {

// Numbers of nvml.h.
constexpr int kSuccess = 0, kNoPermission = 4, kDriverNotLoaded = 9, kVersionMismatch = 18;
constexpr int kSmClock = 1, kMemoryClock = 2, kOnGpu = 0, kByNvlink = 2, kPowerPolicy = 0, kHeatPolicy = 1;
constexpr unsigned kMostNvlinks = 18;

using Device = void*;
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};

struct Calls {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, MemoryInfo*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*max_clock)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;
  int (*violation)(Device, int, ViolationTime*) = nullptr;
  int (*nvlink)(Device, unsigned, int*) = nullptr;
  int (*mig)(Device, unsigned*, unsigned*) = nullptr;
  int (*p2p)(Device, Device, int, int*) = nullptr;
  int (*ancestor)(Device, Device, int*) = nullptr;
};

template <class F>
void take(void* library, F*& function, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if ((function = reinterpret_cast<F*>(dlsym(library, name)))) return;
}

Calls calls_of(void* l) {
  Calls c;
  take(l, c.init, {"nvmlInit_v2"});
  take(l, c.shutdown, {"nvmlShutdown"});
  take(l, c.driver_version, {"nvmlSystemGetDriverVersion"});
  take(l, c.cuda_version, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  take(l, c.count, {"nvmlDeviceGetCount_v2"});
  take(l, c.device, {"nvmlDeviceGetHandleByIndex_v2"});
  take(l, c.name, {"nvmlDeviceGetName"});
  take(l, c.uuid, {"nvmlDeviceGetUUID"});
  take(l, c.memory, {"nvmlDeviceGetMemoryInfo"});
  take(l, c.clock, {"nvmlDeviceGetClockInfo"});
  take(l, c.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  take(l, c.power, {"nvmlDeviceGetPowerUsage"});
  take(l, c.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  take(l, c.temperature, {"nvmlDeviceGetTemperature"});
  take(l, c.throttle, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  take(l, c.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  take(l, c.violation, {"nvmlDeviceGetViolationStatus"});
  take(l, c.nvlink, {"nvmlDeviceGetNvLinkState"});
  take(l, c.mig, {"nvmlDeviceGetMigMode"});
  take(l, c.p2p, {"nvmlDeviceGetP2PStatus"});
  take(l, c.ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  return c;
}

// The value that a call writes into its last argument, if the call exists and succeeds.
template <class T, class F, class... A>
std::optional<T> ask(F* function, A... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
  return value;
}

template <class F, class... A>
std::string text_of(F* function, A... arguments) {
  std::array<char, 128> text{};
  if (function == nullptr || function(arguments..., text.data(), static_cast<unsigned>(text.size())) != kSuccess)
    return "";
  text.back() = '\0';
  return text.data();
}

template <class To, class From>
std::optional<To> as(std::optional<From> value) {
  return value ? std::optional<To>(static_cast<To>(*value)) : std::nullopt;
}

std::string refusal(int result) {
  switch (result) {
    case kDriverNotLoaded:
      return "NVIDIA's driver is not loaded; load it (modprobe nvidia), or start the container with --gpus all";
    case kNoPermission:
      return "this user may not open the GPUs; join the group that owns /dev/nvidia*, or ask the administrator";
    case kVersionMismatch:
      return "NVIDIA's driver was updated while the old one runs: its library and its kernel module differ; restart "
             "the machine";
    default:
      return "NVIDIA's driver does not answer (NVML " + std::to_string(result) + "); nvidia-smi says more";
  }
}

class LoadedNvml final : public Nvml {
 public:
  LoadedNvml(const Calls& calls) : calls_(calls) {
    const unsigned count = ask<unsigned>(calls_.count).value_or(0);
    for (unsigned i = 0; i < count; ++i) {
      const auto device = ask<Device>(calls_.device, i);
      if (!device) continue;
      devices_.push_back(*device);
      facts_.push_back(facts_of(*device));
    }
  }
  ~LoadedNvml() override { calls_.shutdown(); }

  std::string driver() const override { return text_of(calls_.driver_version); }
  std::optional<int> cuda_version() const override { return ask<int>(calls_.cuda_version); }
  const std::vector<GpuFacts>& gpus() const override { return facts_; }

  GpuReading read(std::size_t gpu) const override {
    Device d = devices_.at(gpu);
    GpuReading r;
    r.sm_mhz = ask<unsigned>(calls_.clock, d, kSmClock);
    r.memory_mhz = ask<unsigned>(calls_.clock, d, kMemoryClock);
    r.power_mw = ask<unsigned>(calls_.power, d);
    r.temperature_c = ask<unsigned>(calls_.temperature, d, kOnGpu);
    r.throttle_reasons = as<std::uint64_t>(ask<unsigned long long>(calls_.throttle, d));
    r.energy_mj = as<std::uint64_t>(ask<unsigned long long>(calls_.energy, d));
    if (const auto v = ask<ViolationTime>(calls_.violation, d, kPowerPolicy)) r.power_capped_ns = v->violation_ns;
    if (const auto v = ask<ViolationTime>(calls_.violation, d, kHeatPolicy)) r.heat_capped_ns = v->violation_ns;
    return r;
  }

  std::string link(std::size_t a, std::size_t b) const override {
    Device x = devices_.at(a), y = devices_.at(b);
    if (ask<int>(calls_.p2p, x, y, kByNvlink) == 0) return "NVLink";
    static const std::map<int, const char*> kWords = {{0, "PIX"},  {10, "PIX"},  {20, "PXB"},
                                                      {30, "PHB"}, {40, "NODE"}, {50, "SYS"}};
    const auto level = ask<int>(calls_.ancestor, x, y);
    const auto word = level ? kWords.find(*level) : kWords.end();
    return word == kWords.end() ? "" : word->second;
  }

 private:
  GpuFacts facts_of(Device d) const {
    GpuFacts f;
    f.name = text_of(calls_.name, d);
    f.uuid = text_of(calls_.uuid, d);
    if (const auto m = ask<MemoryInfo>(calls_.memory, d)) f.memory_bytes = static_cast<fsdp::Bytes>(m->total);
    f.max_sm_mhz = ask<unsigned>(calls_.max_clock, d, kSmClock);
    f.power_limit_mw = ask<unsigned>(calls_.power_limit, d);
    for (unsigned i = 0; i < kMostNvlinks; ++i) {
      const auto up = ask<int>(calls_.nvlink, d, i);
      if (up) f.nvlinks = f.nvlinks.value_or(0) + (*up == 1 ? 1 : 0);
    }
    unsigned now = 0, next = 0;
    if (calls_.mig && calls_.mig(d, &now, &next) == kSuccess) f.mig = now == 1;
    return f;
  }

  const Calls calls_;
  std::vector<Device> devices_;
  std::vector<GpuFacts> facts_;
};

}  // namespace

std::vector<std::string> throttle_words(std::uint64_t reasons) {
  static constexpr std::array<std::pair<std::uint64_t, const char*>, 6> kWords = {{{0x04, "power cap"},
                                                                                   {0x08, "hardware slowdown"},
                                                                                   {0x10, "synchronized boost"},
                                                                                   {0x20, "heat"},
                                                                                   {0x40, "heat, by the hardware"},
                                                                                   {0x80, "power brake"}}};
  std::vector<std::string> out;
  for (const auto& [bit, word] : kWords)
    if (reasons & bit) out.emplace_back(word);
  return out;
}

std::unique_ptr<Nvml> Nvml::open(std::string& why) {
  const char* given = std::getenv("SHARDSCOPE_NVML");
  // Never closed: a driver's library does not like it, and the process ends soon.
  void* library = dlopen(given != nullptr && *given != '\0' ? given : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = "no NVIDIA driver (libnvidia-ml.so.1); install one on the host, or start the container with --gpus all";
    return nullptr;
  }
  const Calls calls = calls_of(library);
  if (calls.init == nullptr || calls.shutdown == nullptr || calls.count == nullptr || calls.device == nullptr) {
    why = "the NVIDIA driver's library is too old; a driver of 525 or later is needed";
    return nullptr;
  }
  if (const int result = calls.init(); result != kSuccess) {
    why = refusal(result);
    return nullptr;
  }
  return std::make_unique<LoadedNvml>(calls);
}

std::string topology_text(const Nvml& nvml) {
  std::map<std::string, std::string> pairs;  // word -> " 0-1 2-3"
  const std::size_t n = nvml.gpus().size();
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b)
      if (const std::string word = nvml.link(a, b); !word.empty())
        pairs[word] += " " + std::to_string(a) + "-" + std::to_string(b);
  if (pairs.size() == 1) return n == 2 ? pairs.begin()->first : "all " + pairs.begin()->first;
  std::string out;
  for (const auto& [word, which] : pairs) {
    if (!out.empty()) out += ", ";
    out.append(word).append(which);
  }
  return out;
}

}  // namespace harness
