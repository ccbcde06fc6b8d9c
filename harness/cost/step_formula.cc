#include "harness/cost/step_formula.h"

#include <algorithm>
#include <vector>

namespace harness {
namespace {

constexpr double kAchievedOfMemory = 0.8;
constexpr double kHeadDtypes = 14;      // bytes moved for each logit in forward, and again in backward
constexpr double kOptimizerBytes = 32;  // moved for each parameter of the shard
constexpr double kOptimizerFixedUs = 2000;

struct Product {
  double n, k;  // of T x k by k x n
};

class Estimate {
 public:
  Estimate(const StepCase& c, const CostModel& m, const StepConstants& k)
      : c_(c), model_(m), k_(k), tokens_(c.micro_batch * c.seq), gemm_(m.hardware().ops.at("gemm_bf16")) {
    const double head = c.dim / c.heads, kv = c.kv_heads * head;
    if (c.family == "mpt") {
      products_ = {{3 * c.dim, c.dim}, {c.dim, c.dim}, {c.ffn, c.dim}, {c.dim, c.ffn}};
      block_ = 12 * c.dim * c.dim + 13 * c.dim;
      rest_ = c.vocab * c.dim + c.seq * c.dim + 2 * c.dim;
    } else {
      products_ = {{c.dim, c.dim}, {kv, c.dim},    {kv, c.dim},   {c.dim, c.dim},
                   {c.ffn, c.dim}, {c.ffn, c.dim}, {c.dim, c.ffn}};
      block_ = 2 * c.dim * c.dim + 2 * c.dim * kv + 3 * c.dim * c.ffn + 2 * c.dim;
      rest_ = 2 * c.vocab * c.dim + c.dim;
    }
  }

  StepEstimate run() const {
    const double forward = block_forward();
    const double backward = block_backward() + c_.recompute * (forward - last_product()) + c_.again * forward;
    const double x = c_.accumulate * (c_.layers * (forward + backward) + head() + copies(parameters()));
    const double micro = c_.unit_blocks > 0 ? units(forward, backward) : whole(forward, backward);
    const double optimizer = kOptimizerBytes * parameters() / group() / memory_us() + kOptimizerFixedUs;
    const double slowest = k_.jitter * c_.slowest * x;
    return {(c_.accumulate * micro + slowest + optimizer + k_.boundary_us) * 1e-6, block_, parameters()};
  }

 private:
  // Every unit of some blocks overlaps with the collectives of the next; the first and the last have nobody.
  double units(double forward, double backward) const {
    const double n = c_.layers / c_.unit_blocks, p = c_.unit_blocks * block_;
    const double ag = gather(p), rs = reduce(p), again = c_.zero2 ? 0 : ag;
    const double ag_beside = contending(2 * p), rs_beside = contending(c_.reduce_bytes * p);
    const double f = c_.unit_blocks * forward, b = c_.unit_blocks * backward + copies(p);
    const double forward_pass = c_.forward_prefetch ? pass(f, ag, ag_beside) : f + ag;
    const double backward_pass =
        c_.backward_prefetch ? pass(b, again + rs, (c_.zero2 ? 0 : ag_beside) + rs_beside) : b + again + rs;
    const double ends = gather(rest_) + (c_.forward_prefetch ? ag : 0) + (c_.backward_prefetch ? again : 0) +
                        reduce(rest_) + copies(rest_);
    return n * (forward_pass + backward_pass) + head() + ends;
  }
  // One unit: nothing to overlap with.
  double whole(double forward, double backward) const {
    const double p = parameters();
    return gather(p) + c_.layers * (forward + backward) + head() + copies(p) + reduce(p);
  }
  double parameters() const { return c_.layers * block_ + rest_; }
  int group() const { return c_.shard_group > 0 ? std::min(c_.shard_group, c_.world) : c_.world; }
  // Bytes that memory moves in a microsecond.
  double memory_us() const { return model_.hardware().ops.at("copy").gb_s * 1e3; }

  double product(double m, double n, double k) const {
    const OpPart p = gemm_part(1, m, n, k, 2);
    return op_time_us(gemm_, p.flops, p.bytes) / k_.gemm_efficiency;
  }
  double attention(double tflops) const { return 2 * tokens_ * c_.seq * c_.dim / (tflops * 1e6); }
  double last_product() const { return product(tokens_, products_.back().n, products_.back().k); }
  double memory() const { return (k_.passes + eager_passes()) * tokens_ * c_.dim * 2 / memory_us(); }
  // Over tokens x dim elements of two bytes, beyond those of an mpt block. In the usual eager code an RMS norm is: to
  // fp32 (3), square (4), mean (2), scale (4), back (3), weight (2); a rotation of q or k reads and writes ten times;
  // silu and the product move five tensors of the feed-forward's width. An mpt block has two norms of one kernel each
  // (2) and a gelu over four widths (8).
  double eager_passes() const {
    if (c_.family == "mpt" || c_.compiled) return 0;
    constexpr double kRmsNorm = 18, kLayerNorm = 2, kRotation = 10, kGatedTensors = 5, kGelu = 8;
    return 2 * (kRmsNorm - kLayerNorm) + kRotation * (1 + c_.kv_heads / c_.heads) + kGatedTensors * c_.ffn / c_.dim -
           kGelu;
  }
  // Kernels of a block in forward; an eager mpt's norms cast their three inputs first.
  double kernels() const { return c_.family == "mpt" ? 26 : c_.compiled ? 20 : 37; }
  double block_forward() const {
    double us = attention(k_.attention_tflops) + memory() + kernels() * k_.kernel_us;
    for (const Product& p : products_) us += product(tokens_, p.n, p.k);
    return us;
  }
  double block_backward() const {
    double us = 2.5 * attention(k_.attention_backward_tflops) + 2 * memory() + 1.5 * kernels() * k_.kernel_us;
    for (const Product& p : products_) us += product(tokens_, p.k, p.n) + product(p.n, p.k, tokens_);
    return us;
  }
  double head() const {
    const double v = c_.vocab, d = c_.dim;
    return product(tokens_, v, d) + product(tokens_, d, v) + product(v, d, tokens_) +
           2 * kHeadDtypes * tokens_ * v / memory_us();
  }
  // Computation x with communication k on the other lane, of which `beside` slows it.
  double pass(double x, double k, double beside) const {
    return std::max(x + k_.contention * std::min({k, beside, x}), k);
  }
  double contending(double bytes) const {
    return us(model_.contending(fsdp::CollectiveKind::kAllGather, bytes, model_.topology().shard(group())));
  }
  // A gradient is read in bf16 and written as it is reduced, and what an eager runtime does beyond that.
  double copies(double parameters) const { return k_.copy_traffic * (2 + c_.reduce_bytes) * parameters / memory_us(); }

  double gather(double parameters) const {
    return us(model_.collective(fsdp::CollectiveKind::kAllGather, 2 * parameters, model_.topology().shard(group())));
  }
  double reduce(double parameters) const {
    const double bytes = c_.reduce_bytes * parameters;
    double sum = us(model_.collective(fsdp::CollectiveKind::kReduceScatter, bytes, model_.topology().shard(group())));
    if (group() < c_.world) {
      sum +=
          us(model_.collective(fsdp::CollectiveKind::kAllReduce, bytes / group(), model_.topology().replica(group())));
    }
    return sum;
  }
  static double us(fsdp::Nanos ns) { return static_cast<double>(ns) * 1e-3; }

  const StepCase& c_;
  const CostModel& model_;
  const StepConstants& k_;
  const double tokens_;
  const OpCost& gemm_;
  std::vector<Product> products_;
  double block_ = 0, rest_ = 0;
};

}  // namespace

StepEstimate estimate_step(const StepCase& c, const CostModel& model, const StepConstants& k) {
  return Estimate(c, model, k).run();
}

}  // namespace harness
