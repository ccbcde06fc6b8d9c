#include "tests/trial/both_worlds.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "fsdp/comm/local_transport.h"
#include "harness/trial/line_socket.h"
#include "harness/trial/rank_progress.h"
#include "harness/trial/rank_world.h"
#include "harness/trial/virtual_world.h"

namespace harness {
namespace {

RankResult rank_on_host(const CaseSettings& c, int rank, int memory) {
  RankJob job;
  job.settings = c;
  job.rank = rank, job.world = c.world, job.shared_memory_fd = memory;
  RankProgress progress;
  RankWorld world(job, progress);
  world.step();
  world.barrier();
  world.begin_trace();
  world.step();
  return world.result();
}

std::string text_of(const std::vector<std::string>& all, std::size_t i) { return i < all.size() ? all[i] : "nothing"; }

void compare(const std::string& what, const std::vector<std::string>& host, const std::vector<std::string>& predicted,
             std::vector<std::string>& out) {
  if (host == predicted) return;
  std::size_t i = 0;
  while (i < host.size() && i < predicted.size() && host[i] == predicted[i]) ++i;
  out.push_back(what + " " + std::to_string(i) + ": " + text_of(host, i) + " on the host, " + text_of(predicted, i) +
                " predicted");
}

void compare(const std::string& what, fsdp::Bytes host, fsdp::Bytes predicted, std::vector<std::string>& out) {
  if (host != predicted)
    out.push_back(what + ": " + std::to_string(host) + " bytes on the host, " + std::to_string(predicted) +
                  " predicted");
}

}  // namespace

RankResult on_host(const CaseSettings& c) {
  const Fd memory(fsdp::create_shared_memory(c.world, fsdp::Bytes{1} << 28));
  std::vector<std::thread> ranks;
  std::vector<RankResult> results(static_cast<std::size_t>(c.world));
  std::vector<std::exception_ptr> failures(results.size());
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        results[rank] = rank_on_host(c, static_cast<int>(rank), memory.get());
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  for (const std::exception_ptr& f : failures)
    if (f) std::rethrow_exception(f);
  return std::move(results[0]);
}

RankResult predicted(CaseSettings c) {
  apply_setting(c, "device", "virtual");
  RankJob job;
  job.settings = c;
  job.world = c.world;
  RankProgress progress;
  return run_virtual(job, progress, true).result;
}

std::vector<std::string> schedule(const std::vector<fsdp::Span>& spans) {
  std::vector<std::string> out;
  for (const fsdp::Span& s : spans) {
    if (!fsdp::is_collective(s.kind)) continue;
    out.push_back(std::string(name_of(s.kind)) + " " + std::to_string(s.unit) + " " + std::string(name_of(s.pass)) +
                  " " + std::to_string(s.bytes));
  }
  return out;
}

std::vector<std::string> order(const std::vector<fsdp::Span>& spans) {
  std::vector<fsdp::Span> sorted = spans;
  std::stable_sort(sorted.begin(), sorted.end(), [](const fsdp::Span& a, const fsdp::Span& b) {
    return std::pair(a.lane, a.begin) < std::pair(b.lane, b.begin);
  });
  std::vector<std::string> out;
  for (const fsdp::Span& s : sorted) {
    if (s.lane == fsdp::Lane::kHost || s.unit == fsdp::kNoUnit) continue;
    if (s.unit == 0 && s.kind == fsdp::SpanKind::kCompute) continue;  // the root
    std::string text = std::string(name_of(s.lane)) + ": " + std::string(name_of(s.kind)) + " " +
                       std::to_string(s.unit) + " " + std::string(name_of(s.pass));
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(std::move(text));
  }
  return out;
}

std::vector<std::string> differences(const RankResult& host, const RankResult& predicted) {
  std::vector<std::string> out;
  compare("peak", host.peak.total, predicted.peak.total, out);
  for (std::size_t i = 0; i < host.category_peaks.size(); ++i)
    compare("peak of " + std::string(name_of(static_cast<fsdp::MemoryCategory>(i))), host.category_peaks[i],
            predicted.category_peaks[i], out);
  compare("cause of the peak", {host.peak_cause}, {predicted.peak_cause}, out);
  compare("collective", schedule(host.spans), schedule(predicted.spans), out);
  // A unit whose work is charged to its parent leaves a moment without an operator on the host, and nothing here.
  const std::vector<std::string> here = order(predicted.spans);
  std::vector<std::string> there = order(host.spans);
  std::erase_if(there, [&](const std::string& what) {
    return what.rfind("compute: compute", 0) == 0 && std::find(here.begin(), here.end(), what) == here.end();
  });
  compare("span", there, here, out);
  compare("sent in a step", host.communicated_bytes_per_step, predicted.communicated_bytes_per_step, out);
  return out;
}

}  // namespace harness
