#include "fsdp/module/relative_bias.h"

#include <algorithm>
#include <cmath>

#include "fsdp/module/op_bodies.h"

namespace fsdp::ops {

// In fp32, as the models that were trained with it: a boundary may fall on the other side in double.
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, bool both_ways, std::int64_t far) {
  if (both_ways) buckets /= 2;
  const std::int64_t first = both_ways && distance > 0 ? buckets : 0;
  const std::int64_t n = both_ways ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  const std::int64_t exact = buckets / 2;
  if (n < exact) return first + n;
  const auto octaves = static_cast<float>(std::log(static_cast<double>(far) / static_cast<double>(exact)));
  const float place = std::log(static_cast<float>(n) / static_cast<float>(exact)) / octaves;
  const auto step = static_cast<std::int64_t>(place * static_cast<float>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

namespace host {
namespace {

// The bucket of each distance from 1 - queries to keys - 1.
std::vector<int64_t> buckets_of(int64_t queries, int64_t keys, int64_t buckets, bool both_ways, int64_t far) {
  std::vector<int64_t> of;
  for (int64_t d = 1 - queries; d < keys; ++d) of.push_back(relative_bucket(d, buckets, both_ways, far));
  return of;
}

}  // namespace

// fp32 or bf16: few elements, by LibTorch's conversions.
Tensor relative_bias(const Tensor& table, int64_t queries, int64_t keys, bool both_ways, int64_t far) {
  const int64_t heads = table.size(1);
  const auto bucket = buckets_of(queries, keys, table.size(0), both_ways, far);
  Tensor y = at::detail::empty_cpu({heads, queries, keys}, table.scalar_type());
  const auto fill = [&](const auto* from, auto* to) {
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j)
          *to++ = from[bucket[static_cast<std::size_t>(j - i + queries - 1)] * heads + h];
  };
  if (table.scalar_type() == at::kFloat)
    fill(table.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  else
    fill(table.const_data_ptr<at::BFloat16>(), y.mutable_data_ptr<at::BFloat16>());
  return y;
}

// Sums by distance first, in double: a bucket adds up to heads x steps^2 elements.
Tensor relative_bias_backward(const Tensor& g, int64_t buckets, bool both_ways, int64_t far) {
  const int64_t heads = g.size(0), queries = g.size(1), keys = g.size(2);
  const auto bucket = buckets_of(queries, keys, buckets, both_ways, far);
  Tensor d_table = at::detail::empty_cpu({buckets, heads}, g.scalar_type());
  const auto add = [&](const auto* from, auto* to) {
    std::vector<double> sums(static_cast<std::size_t>(buckets * heads), 0.0);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j)
          sums[static_cast<std::size_t>(bucket[static_cast<std::size_t>(j - i + queries - 1)] * heads + h)] +=
              static_cast<double>(static_cast<float>(*from++));
    for (const double s : sums) *to++ = static_cast<float>(s);
  };
  if (g.scalar_type() == at::kFloat)
    add(g.const_data_ptr<float>(), d_table.mutable_data_ptr<float>());
  else
    add(g.const_data_ptr<at::BFloat16>(), d_table.mutable_data_ptr<at::BFloat16>());
  return d_table;
}

// Operators on steps, beside those of ops_host.cc.
Tensor mean_steps(const Tensor& x) {
  TORCH_CHECK(x.dim() == 3 && x.is_contiguous(), "shardscope::mean_steps: x ", x.sizes());
  Tensor y = at::detail::empty_cpu({x.size(0), x.size(2)}, x.scalar_type());
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2);
  const auto mean = [&](const auto* from, auto* to) {
    std::vector<float> sums(static_cast<std::size_t>(width));
    for (int64_t b = 0; b < batch; ++b) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t t = 0; t < steps; ++t)
        for (float& s : sums) s += static_cast<float>(*from++);
      for (const float s : sums) *to++ = s / static_cast<float>(steps);
    }
  };
  if (x.scalar_type() == at::kFloat)
    mean(x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  else
    mean(x.const_data_ptr<at::BFloat16>(), y.mutable_data_ptr<at::BFloat16>());
  return y;
}
Tensor mean_steps_backward(const Tensor& g, int64_t steps) {
  Tensor dx = at::detail::empty_cpu({g.size(0), steps, g.size(1)}, g.scalar_type());
  const int64_t width = g.size(1);
  const auto spread = [&](const auto* from, auto* to) {
    for (int64_t b = 0; b < g.size(0); ++b, from += width)
      for (int64_t t = 0; t < steps; ++t)
        for (int64_t j = 0; j < width; ++j) *to++ = static_cast<float>(from[j]) / static_cast<float>(steps);
  };
  if (g.scalar_type() == at::kFloat)
    spread(g.const_data_ptr<float>(), dx.mutable_data_ptr<float>());
  else
    spread(g.const_data_ptr<at::BFloat16>(), dx.mutable_data_ptr<at::BFloat16>());
  return dx;
}

}  // namespace host
}  // namespace fsdp::ops
