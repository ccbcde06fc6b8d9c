#include "harness/trial/gpu/gpu_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "fsdp/core/clock.h"

namespace harness {
namespace {

constexpr std::chrono::milliseconds kPeriod{200};
constexpr std::uint64_t kIdle = 0x1;
constexpr double kLostShare = 0.01;  // of the time: below it a throttle is not worth a warning

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::optional<std::uint64_t> increase(const GpuHistory& g, std::optional<std::uint64_t> GpuReading::*counter) {
  const auto first = g.readings.front().*counter, last = g.readings.back().*counter;
  return first && last && *last >= *first ? std::optional(*last - *first) : std::nullopt;
}

// While it was not idling; all readings where the driver does not tell.
std::vector<const GpuReading*> busy_readings(const GpuHistory& g) {
  std::vector<const GpuReading*> busy;
  for (const GpuReading& r : g.readings)
    if (!r.throttle_reasons || !(*r.throttle_reasons & kIdle)) busy.push_back(&r);
  return busy;
}

void clocks(const GpuHistory& g, const std::vector<const GpuReading*>& busy, const std::string& key, GpuReport& out) {
  std::optional<unsigned> least, most, memory;
  for (const GpuReading* r : busy) {
    if (r->memory_mhz) memory = r->memory_mhz;
    if (!r->sm_mhz) continue;
    least = std::min(least.value_or(*r->sm_mhz), *r->sm_mhz);
    most = std::max(most.value_or(0), *r->sm_mhz);
  }
  if (memory) out.fields[key + "memory_mhz"] = std::to_string(*memory);
  if (!least) return;
  std::string text = *least == *most ? std::to_string(*least) : fmt::format("{}..{}", *least, *most);
  if (g.facts.max_sm_mhz) text += fmt::format(" of {}", *g.facts.max_sm_mhz);
  out.fields[key + "sm_mhz"] = text;
}

void heat(const GpuHistory& g, const std::string& key, GpuReport& out) {
  std::optional<unsigned> most;
  for (const GpuReading& r : g.readings)
    if (r.temperature_c) most = std::max(most.value_or(0), *r.temperature_c);
  if (most) out.fields[key + "temperature_c"] = std::to_string(*most);
}

void power(const GpuHistory& g, fsdp::Nanos elapsed_ns, const std::string& key, GpuReport& out) {
  const auto energy_mj = increase(g, &GpuReading::energy_mj);
  if (energy_mj && elapsed_ns > 0) {
    const double watts = static_cast<double>(*energy_mj) * 1e6 / static_cast<double>(elapsed_ns);
    out.fields[key + "power_w"] = fmt::format("{:.0f}", watts);
    return;
  }
  double sum = 0;
  int n = 0;
  for (const GpuReading& r : g.readings)
    if (r.power_mw) sum += *r.power_mw / 1000.0, ++n;
  if (n > 0) out.fields[key + "power_w"] = fmt::format("{:.0f}", sum / n);
}

// By the counters where the GPU has them, else by the share of readings that gave a reason.
void throttling(const GpuHistory& g, const std::vector<const GpuReading*>& busy, fsdp::Nanos elapsed_ns,
                const std::string& key, GpuReport& out) {
  double share = 0;
  std::set<std::string> reasons;
  std::size_t told = 0, slowed = 0;
  for (const GpuReading* r : busy) {
    if (!r->throttle_reasons) continue;
    ++told;
    const auto words = throttle_words(*r->throttle_reasons);
    slowed += !words.empty();
    reasons.insert(words.begin(), words.end());
  }
  const auto by_power = increase(g, &GpuReading::power_capped_ns), by_heat = increase(g, &GpuReading::heat_capped_ns);
  if ((by_power || by_heat) && elapsed_ns > 0) {
    share = static_cast<double>(by_power.value_or(0) + by_heat.value_or(0)) / static_cast<double>(elapsed_ns);
    if (by_power.value_or(0) > 0) reasons.insert("power cap");
    if (by_heat.value_or(0) > 0) reasons.insert("heat");
  } else if (told > 0) {
    share = static_cast<double>(slowed) / static_cast<double>(told);
  } else {
    return;
  }
  const std::string why = joined({reasons.begin(), reasons.end()});
  out.fields[key + "throttled"] =
      share == 0 && why.empty() ? "no" : fmt::format("{:.1f} % of the time ({})", 100 * share, why);
  if (share > kLostShare)
    out.warnings.push_back(
        fmt::format("throttled: GPU {} was slowed {:.0f} % of the time ({})", g.index, 100 * share, why));
}

}  // namespace

void report_gpu(const GpuHistory& g, fsdp::Nanos elapsed_ns, GpuReport& out) {
  if (g.readings.empty()) return;
  const std::string key = fmt::format("machine.gpu{}.", g.index);
  const auto busy = busy_readings(g);
  clocks(g, busy, key, out);
  heat(g, key, out);
  power(g, elapsed_ns, key, out);
  throttling(g, busy, elapsed_ns, key, out);
}

class GpuWatch::Impl {
 public:
  explicit Impl(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)), begin_(fsdp::steady_now()) {
    for (std::size_t i = 0; i < nvml_->gpus().size(); ++i) gpus_.push_back({i, nvml_->gpus()[i], {}});
    read();
    thread_ = std::thread([this] { loop(); });
  }
  ~Impl() { join(); }

  GpuReport finish() {
    join();
    read();
    const fsdp::Nanos elapsed = fsdp::steady_now() - begin_;
    GpuReport out;
    std::set<std::string> names;
    for (const GpuHistory& g : gpus_) {
      names.insert(g.facts.name.empty() ? "unknown" : g.facts.name);
      report_gpu(g, elapsed, out);
    }
    if (gpus_.empty()) return out;
    out.fields["gpu"] = fmt::format("{}", fmt::join(names, " + "));
    out.fields["gpu_count"] = std::to_string(gpus_.size());
    if (const std::string driver = nvml_->driver(); !driver.empty()) out.fields["gpu_driver"] = driver;
    if (const std::string topology = topology_text(*nvml_); !topology.empty()) out.fields["gpu_topology"] = topology;
    return out;
  }

 private:
  void read() {
    for (GpuHistory& g : gpus_) g.readings.push_back(nvml_->read(g.index));
  }
  void loop() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPeriod, [this] { return ending_; })) read();
  }
  void join() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const std::unique_ptr<Nvml> nvml_;
  const fsdp::Nanos begin_;
  std::vector<GpuHistory> gpus_;  // the thread's until it is joined
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

GpuWatch::GpuWatch(std::unique_ptr<Nvml> nvml) {
  std::string why;
  if (!nvml) nvml = Nvml::open(why);
  if (nvml && !nvml->gpus().empty()) impl_ = std::make_unique<Impl>(std::move(nvml));
}
GpuWatch::~GpuWatch() = default;
GpuReport GpuWatch::finish() { return impl_ ? impl_->finish() : GpuReport{}; }

}  // namespace harness
