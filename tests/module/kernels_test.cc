// The hot loops against the same formulas in double, on every instruction set that this processor has.
#include "fsdp/module/kernels.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "fsdp/module/kernels_table.h"

namespace fsdp::kernels {

#if defined(__x86_64__)
namespace avx512 {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
#endif
namespace baseline {
extern const Table kTable;
}

namespace {

std::vector<float> random_floats(Index n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> d(-1.0f, 1.0f);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = d(generator);
  return v;
}

struct NamedTable {
  std::string name;
  const Table* table;
};
std::vector<NamedTable> tables() {
  std::vector<NamedTable> t{{"baseline", &baseline::kTable}};
#if defined(__x86_64__)
  if (instruction_set() != "baseline") t.push_back({"avx2", &avx2::kTable});
  if (instruction_set() == "avx512") t.push_back({"avx512", &avx512::kTable});
#endif
  return t;
}

class Kernels : public testing::TestWithParam<NamedTable> {
 protected:
  const Table& k() const { return *GetParam().table; }
  std::vector<float> scratch = std::vector<float>(static_cast<std::size_t>(kGemmScratch));
};

TEST_P(Kernels, ProductsOfOddShapesMatchInEveryLayout) {
  for (const auto& [m, n, depth] :
       std::vector<std::array<Index, 3>>{{1, 1, 1}, {13, 60, 60}, {7, 101, 33}, {64, 64, 32}, {9, 530, 300}}) {
    const auto a = random_floats(m * depth, 1), b = random_floats(n * depth, 2);
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        std::vector<float> c(static_cast<std::size_t>(m * n), 0.5f);
        k().gemm(ta, tb, m, n, depth, a.data(), ta ? m : depth, b.data(), tb ? depth : n, c.data(), n, true,
                 scratch.data());
        for (Index i = 0; i < m; ++i) {
          for (Index j = 0; j < n; ++j) {
            double want = 0.5;
            for (Index p = 0; p < depth; ++p)
              want +=
                  static_cast<double>(ta ? a[p * m + i] : a[i * depth + p]) * (tb ? b[j * depth + p] : b[p * n + j]);
            ASSERT_NEAR(c[i * n + j], want, 1e-5 * std::sqrt(static_cast<double>(depth)))
                << m << "x" << n << "x" << depth << " ta " << ta << " tb " << tb << " at " << i << "," << j;
          }
        }
      }
    }
  }
}

TEST_P(Kernels, ActivationsMatchDouble) {
  const Index n = 4001;
  std::vector<float> x(n), one(n, 1.0f), y(n), dx(n), up(n);
  for (Index i = 0; i < n; ++i) x[i] = -30.0f + 60.0f * static_cast<float>(i) / static_cast<float>(n - 1);
  k().swiglu(x.data(), one.data(), n, y.data());
  k().swiglu_backward(one.data(), x.data(), one.data(), n, dx.data(), up.data());
  for (Index i = 0; i < n; ++i) {
    const double v = x[i], s = 1.0 / (1.0 + std::exp(-v));
    ASSERT_NEAR(y[i], v * s, 2e-6 * (std::abs(v * s) + 1e-6)) << v;
    ASSERT_NEAR(dx[i], s * (1.0 + v * (1.0 - s)), 4e-6) << v;
    ASSERT_EQ(up[i], y[i]);
  }
  k().gelu(x.data(), n, true, y.data());
  k().gelu_backward(one.data(), x.data(), n, true, dx.data());
  for (Index i = 0; i < n; ++i) {
    const double v = x[i], u = std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v), t = std::tanh(u);
    const double slope = std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * v * v);
    ASSERT_NEAR(y[i], 0.5 * v * (1.0 + t), 2e-6 * (1.0 + std::abs(v))) << v;
    ASSERT_NEAR(dx[i], 0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope, 6e-6) << v;
  }
  k().gelu(x.data(), n, false, y.data());
  k().gelu_backward(one.data(), x.data(), n, false, dx.data());
  for (Index i = 0; i < n; ++i) {
    const double v = x[i], cdf = 0.5 * std::erfc(-v / std::sqrt(2.0));
    ASSERT_NEAR(y[i], v * cdf, 1e-6 * (1.0 + std::abs(v))) << v;
    ASSERT_NEAR(dx[i], cdf + v * std::exp(-0.5 * v * v) / std::sqrt(2.0 * M_PI), 2e-6) << v;
  }
}

TEST_P(Kernels, OneAdamWStepMatchesDouble) {
  const Index n = 5000;
  const auto g = random_floats(n, 3), p0 = random_floats(n, 4), m0 = random_floats(n, 5);
  auto p = p0, m = m0, v = random_floats(n, 6);
  for (float& x : v) x = std::abs(x);
  const auto v0 = v;
  AdamW a;
  a.correction1 = 1.0f - 0.9f, a.correction2 = 1.0f - 0.95f;
  const double squares = k().adamw(a, n, g.data(), p.data(), m.data(), v.data());
  double want_squares = 0.0;
  for (Index i = 0; i < n; ++i) {
    want_squares += static_cast<double>(g[i]) * g[i];
    const double mi = 0.9 * m0[i] + 0.1 * g[i], vi = 0.95 * v0[i] + 0.05 * g[i] * g[i];
    const double want = p0[i] * (1.0 - 1e-4) - 1e-3 * (mi / 0.1) / (std::sqrt(vi / 0.05) + 1e-8);
    ASSERT_NEAR(p[i], want, 2e-6);
  }
  EXPECT_NEAR(squares, want_squares, 1e-5 * want_squares);
}

TEST_P(Kernels, WeightsFollowTheCounterRule) {
  std::vector<float> w(70);
  k().uniform_weights(1234, 0, 0, 70, w.data());
  EXPECT_EQ(w[0], 0.007346998900175095f);  // tests/data/goldens/README.md
  std::vector<float> middle(10);
  k().uniform_weights(1234, 0, 33, 43, middle.data());
  for (Index i = 0; i < 10; ++i) EXPECT_EQ(middle[i], w[33 + i]);
}

INSTANTIATE_TEST_SUITE_P(Instructions, Kernels, testing::ValuesIn(tables()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fsdp::kernels
