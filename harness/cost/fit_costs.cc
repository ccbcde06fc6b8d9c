#include "harness/cost/fit_costs.h"

#include <algorithm>
#include <cmath>

#include "harness/cost/cost_model.h"
#include "harness/cost/simplex.h"

namespace harness {
namespace {

constexpr double kSoft = 0.05;  // errors above it count by their size, not their square

double loss_of(double predicted, double measured) {
  const double z = std::log(std::max(predicted, 1e-9) / measured) / kSoft;
  return 2 * (std::sqrt(1 + z * z) - 1);
}

double time_of(const OpCost& c, const OpSample& s) {
  double us = 0;
  for (const OpPart& p : s.work.parts) us += op_time_us(c, p.flops, p.bytes, s.cold);
  return us;
}

OpCost cost_from(const Point& p, bool computes, bool cold) {
  OpCost c;
  c.t0_us = std::exp(p[0]);
  c.gb_s = std::exp(p[1]);
  if (computes) c.tflops = std::exp(p[2]);
  if (cold) c.cold_gb_s = std::exp(p.back());
  return c;
}

OpCost fit_op(const std::vector<const OpSample*>& samples) {
  double fastest = 1e30, flops = 0, bytes = 0;
  bool computes = false, cold = false;
  for (const OpSample* s : samples) {
    fastest = std::min(fastest, s->us);
    flops = std::max(flops, s->work.flops() / s->us * 1e-6);
    bytes = std::max(bytes, s->work.bytes() / s->us * 1e-3);
    computes = computes || s->work.flops() > 0;
    cold = cold || s->cold > 0;
  }
  const auto loss = [&](const Point& p) {
    const OpCost c = cost_from(p, computes, cold);
    double sum = 0;
    for (const OpSample* s : samples) sum += loss_of(time_of(c, *s), s->us);
    return sum;
  };
  Point start = {std::log(std::max(0.1, fastest * 0.3)), std::log(std::max(0.1, bytes * 2))};
  if (computes) start.push_back(std::log(std::max(1e-6, flops * 1.1)));
  if (cold) start.push_back(std::log(std::max(0.1, bytes * 4)));
  return cost_from(least(loss, start, 0.5), computes, cold);
}

const char* kind_key(const OpSample& s) {
  switch (s.work.kind) {
    case OpKind::kGemm:
      return "gemm_fp32";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kOptimizer:
      return "optimizer";
    case OpKind::kCopy:
    case OpKind::kCopyOut:
      return "copy";
    default:
      return "elementwise";
  }
}

}  // namespace

std::map<std::string, OpCost> fit_ops(const std::vector<OpSample>& samples) {
  std::map<std::string, std::vector<const OpSample*>> groups;
  for (const OpSample& s : samples) {
    if (s.work.kind == OpKind::kFree || s.us <= 0) continue;
    groups[s.name].push_back(&s);
    groups[kind_key(s)].push_back(&s);
  }
  std::map<std::string, OpCost> costs;
  for (const auto& [name, list] : groups) costs[name] = fit_op(list);
  return costs;
}

CollectiveCurve fit_curve(const std::vector<CollectiveSample>& samples) {
  CollectiveCurve c;
  double best = 0;
  for (const CollectiveSample& s : samples) best = std::max(best, s.sent_bytes / s.us * 1e-3);
  const auto loss = [&](const Point& p) {
    double sum = 0;
    for (const CollectiveSample& s : samples)
      sum += loss_of(std::exp(p[0]) + s.sent_bytes / (std::exp(p[1]) * 1e3), s.us);
    return sum;
  };
  const Point p = least(loss, {std::log(20), std::log(std::max(0.01, best))}, 0.5);
  c.devices = samples.empty() ? 2 : samples.front().devices;
  c.alpha_us = std::exp(p[0]);
  c.gb_s = std::exp(p[1]);
  return c;
}

}  // namespace harness
