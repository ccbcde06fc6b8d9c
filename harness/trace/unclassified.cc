#include "harness/trace/unclassified.h"

#include <algorithm>
#include <cstdio>

#include "harness/trace/json_text.h"

namespace harness {

using fsdp::Nanos;

namespace {

constexpr double kMatters = 1;  // percent
constexpr std::size_t kNamed = 3;

double share(Nanos ns, Nanos length) {
  return length > 0 ? std::min(100.0, 100.0 * static_cast<double>(ns) / static_cast<double>(length)) : 0;
}

std::string percent(double v) {
  char text[32];
  std::snprintf(text, sizeof text, v >= 10 || v == 0 ? "%.0f %%" : "%.2g %%", v);
  return text;
}

std::string counted(std::int64_t n, const std::string& one, const std::string& many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string brief(const std::string& name) { return name.size() <= 80 ? name : printable(name.substr(0, 77)) + "..."; }

std::string collective_text(fsdp::SpanKind kind) {
  return kind == fsdp::SpanKind::kOtherCollective ? "collectives" : std::string(fsdp::name_of(kind));
}

}  // namespace

void UnclassifiedKernels::add(const DeviceOp& op) {
  if (!op.looks_like_communication || op.cls == OpClass::kCommunication) return;
  Sum& s = by_name_[op.name];
  ++s.count;
  s.ns += op.end - op.begin;
}

void UnclassifiedKernels::append(const ForeignTrace& trace, Nanos length, std::vector<Unclassified>& out) const {
  if (by_name_.empty()) return;
  std::vector<std::pair<std::uint32_t, Sum>> names(by_name_.begin(), by_name_.end());
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  Unclassified u{"kernel_name", ""};
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    u.count += names[i].second.count;
    u.ns += names[i].second.ns;
    if (i < kNamed) list += (i > 0 ? ", " : "") + brief(trace.names()[names[i].first]);
  }
  if (names.size() > kNamed) list += ", and " + std::to_string(names.size() - kNamed) + " more names";
  u.pct = share(u.ns, length);
  u.matters = u.pct > kMatters;
  u.text = counted(u.count, "kernel has a name", "kernels have names") + " that may be communication and " +
           (u.count == 1 ? "is" : "are") + " not counted as such: " + percent(u.pct) + " of the time (" + list + ")";
  out.push_back(std::move(u));
}

std::vector<Unclassified> unclassified_of_row(const ForeignTrace& trace, std::size_t row, const ForeignStep& total) {
  std::vector<Unclassified> out;
  const Nanos length = sum(total.partition.classes);
  if (const UnknownCollectives& c = trace.unknown_collectives().at(row); c.ranges > 0) {
    Unclassified u{"collective_range", "", c.operations, c.ns, share(c.ns, length)};
    u.matters = u.pct > kMatters;
    u.text =
        counted(c.ranges, "host range", "host ranges") + " of " + collective_text(c.kind) +
        " launched no operation that is known to communicate: " + counted(c.operations, "operation", "operations") +
        " inside may, " + percent(u.pct) + " of the time";
    out.push_back(std::move(u));
  }
  const auto& processes = trace.facts.processes;
  const auto p = processes.find(trace.rows()[row].process);
  if (p != processes.end() && p->second.unmatched > 0) {
    const ProcessCalls& c = p->second;
    Unclassified u{"launch_without_kernel", "", c.unmatched, total.unrecorded, share(total.unrecorded, length)};
    u.matters = u.pct > kMatters || c.unmatched * 100 > c.launches;
    u.text = counted(c.unmatched, "launch has", "launches have") + " no kernel in the trace (of " +
             std::to_string(c.launches) + ")";
    if (u.ns > 0) {
      u.text +=
          ": " + percent(u.pct) + " of the step is unknown, since it may have run in gaps that count as host or idle";
    }
    out.push_back(std::move(u));
  }
  return out;
}

std::vector<Unclassified> unclassified_of_file(const ForeignTrace& trace, Nanos length) {
  std::vector<Unclassified> out;
  const bool tables = trace.facts.source == TraceSource::kNsys;
  for (const UnknownEvents& e : trace.facts.unknown) {
    Unclassified u{tables ? "table" : "category", "", e.count, e.ns, share(e.ns, length)};
    u.matters = e.device && (u.pct > kMatters || length == 0);
    if (tables) {
      u.text = std::string("table ") + e.what + " is not read: " + counted(e.count, "row", "rows");
    } else {
      u.text = std::string(e.device ? "device events of a category not known: " : "events of a category not known: ") +
               e.what + " (" + counted(e.count, "event", "events");
    }
    if (e.ns > 0) {
      u.text += ", " + grouped_micros(e.ns) + " us in all";
      if (length > 0) u.text += ", " + percent(u.pct) + " of the time";
    }
    if (!tables) u.text += ")";
    out.push_back(std::move(u));
  }
  Unclassified without{"process_without_kernels", ""};
  std::size_t all = 0;
  std::string list;
  for (const auto& [process, c] : trace.facts.processes) {
    if (c.calls + c.ranges + c.operations == 0) continue;
    ++all;
    if (c.operations > 0) continue;
    without.matters |= c.launches > 0 || c.ranges > 0;
    if (without.count++ < static_cast<std::int64_t>(kNamed)) {
      list += (list.empty() ? "" : ", ") + std::to_string(tables ? process >> 24 & 0xFFFFFF : process);
    }
  }
  for (const std::int64_t pid : trace.facts.device_pids) {
    const auto mine = [&](const auto& p) { return (p.first >> 24 & 0xFFFFFF) == pid; };
    if (std::any_of(trace.facts.processes.begin(), trace.facts.processes.end(), mine)) continue;
    ++all;
    if (without.count++ < static_cast<std::int64_t>(kNamed)) list += (list.empty() ? "" : ", ") + std::to_string(pid);
  }
  if (without.count > 0 && length > 0) {
    if (without.count > static_cast<std::int64_t>(kNamed)) list += ", ...";
    without.text = std::to_string(without.count) + " of " + std::to_string(all) +
                   " processes have no kernels in this trace (" + list + "): what their devices did is unknown";
    out.push_back(std::move(without));
  }
  return out;
}

}  // namespace harness
