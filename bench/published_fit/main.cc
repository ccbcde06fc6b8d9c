// published_fit ROWS.csv DECISIONS.csv: fits the constants of each GPU on the rows whose role is `fit` and on published
// pairs of settings, leaves one model out at a time, predicts all other rows, and prints every row's error and the
// summary. No constant sees a row that it predicts in a validation line.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "bench/published_fit/fit.h"

namespace bench {
namespace {

using Rows = std::vector<const Row*>;

std::string family_of(const std::string& gpu) {
  return gpu.starts_with("a100") ? "a100" : gpu.starts_with("h100") ? "h100" : gpu;
}

void print(const char* what, const std::string& gpu, const Errors& e) {
  std::printf("%-34s %-6s %4zu rows  median %5.1f %%  90 %% within %5.1f %%  worst %5.1f %%\n", what, gpu.c_str(),
              e.rows, 100 * e.median, 100 * e.p90, 100 * e.worst);
}

void print_row(const char* role, const Row& r, double predicted) {
  std::printf(
      "%-9s %-9s %-10s %-13s seq %5.0f x%-4d mb %3.0f acc %2.0f %s%s  measured %8.4f s  predicted %8.4f s  %+6.1f %%\n",
      role, r.id.c_str(), r.model.c_str(), r.gpu.c_str(), r.c.seq, r.c.world, r.c.micro_batch, r.c.accumulate,
      r.c.recompute > 0 ? "full"
      : r.c.again > 0   ? "sel "
                        : "none",
      r.compiled ? " compiled" : "", r.seconds, predicted, 100 * (predicted / r.seconds - 1));
}

std::vector<double> ratios(const Rows& rows, Predictor& p, const harness::StepConstants& k) {
  std::vector<double> out;
  for (const Row* r : rows) out.push_back(p.seconds(*r, k) / r->seconds);
  return out;
}

// Settings of one model, sequence and world: is the order of their speeds right?
double order_of(const Rows& rows, Predictor& p, const harness::StepConstants& k) {
  std::vector<double> measured, predicted;
  for (const Row* r : rows) {
    const double tokens = r->c.micro_batch * r->c.seq * r->c.accumulate;
    measured.push_back(r->seconds / tokens / std::pow(r->c.dim, 2) / r->c.layers);
    predicted.push_back(p.seconds(*r, k) / tokens / std::pow(r->c.dim, 2) / r->c.layers);
  }
  return spearman(measured, predicted);
}

// Chosen so that the published series of 128 to 512 GPUs fall as they do; no step time of one world tells it.
constexpr double kJitter = 0.01;

struct Family {
  Rows rows;
  std::vector<const Decision*> decisions;
};
using Families = std::map<std::string, Family>;

void print_constants(const std::string& gpu, const harness::StepConstants& k) {
  std::printf(
      "\n%s: efficiency %.3f, attention %.1f and %.1f TFLOP/s, passes %.1f, kernel %.2f us, copies %.2f, contention "
      "%.3f,"
      " boundary %.1f ms, jitter %.3f\n",
      gpu.c_str(), k.gemm_efficiency, k.attention_tflops, k.attention_backward_tflops, k.passes, k.kernel_us,
      k.copy_traffic, k.contention, k.boundary_us * 1e-3, k.jitter);
}

// As constants were before they had bounds: what a step gains by it, and what pairs lose.
void print_before(const Families& families, Predictor& p) {
  std::printf("\nas before: contention without a bound, nothing for bytes of parameters and for the boundary\n");
  for (const auto& [gpu, f] : families) {
    const harness::StepConstants k = fit(f.rows, {}, p, {.as_before = true});
    print_constants(gpu, k);
    print("fitted rows", gpu, errors_of(ratios(f.rows, p, k)));
    for (const Decision* d : f.decisions)
      std::printf("%-9s %-10s measured %.3f  predicted %.3f\n", d->kind.c_str(), d->id.c_str(), d->ratio,
                  p.ratio(*d, k));
  }
}

// One share for all GPUs, since NCCL takes the same channels of each: the one with the least loss.
double choose_contention(const Families& families, Predictor& p) {
  std::printf("\ncontention   loss of times and of pairs, by GPU\n");
  double best = 0, least = 1e30;
  for (int i = 0; i <= 6; ++i) {
    const double chi = harness::kLeastContention + (harness::kMostContention - harness::kLeastContention) * i / 6;
    double sum = 0;
    std::printf("%.2f       ", chi);
    for (const auto& [gpu, f] : families) {
      const harness::StepConstants k = fit(f.rows, f.decisions, p, {.contention = chi, .jitter = kJitter});
      const double times = loss_of(f.rows, {}, p, k), pairs = loss_of({}, f.decisions, p, k);
      std::printf("  %s %6.1f + %5.1f", gpu.c_str(), times, pairs);
      sum += times + pairs;
    }
    std::printf("   together %.1f\n", sum);
    if (sum < least) least = sum, best = chi;
  }
  return best;
}

harness::StepConstants calibrate(const std::string& gpu, const Family& f, Predictor& p, double contention,
                                 bool every_row) {
  const Rows& rows = f.rows;
  const FitOptions options{.contention = contention, .jitter = kJitter};
  const harness::StepConstants k = fit(rows, f.decisions, p, options);
  print_constants(gpu, k);
  print("fitted rows", gpu, errors_of(ratios(rows, p, k)));
  for (const Decision* d : f.decisions)
    std::printf("%-9s %-10s measured %.3f  predicted %.3f\n", d->kind.c_str(), d->id.c_str(), d->ratio, p.ratio(*d, k));
  std::set<std::string> models;
  for (const Row* r : rows) models.insert(r->model);
  std::vector<double> left_out;
  for (const std::string& model : models) {
    Rows others, these;
    for (const Row* r : rows) (r->model == model ? these : others).push_back(r);
    const harness::StepConstants without = fit(others, f.decisions, p, options);
    for (const Row* r : these) {
      const double predicted = p.seconds(*r, without);
      left_out.push_back(predicted / r->seconds);
      if (every_row) print_row("left out", *r, predicted);
    }
  }
  print("one model left out at a time", gpu, errors_of(left_out));
  std::printf("%-34s %-6s Spearman %.3f (time for each token and parameter)\n", "order of settings", gpu.c_str(),
              order_of(rows, p, k));
  return k;
}

// Published series of growing worlds: tokens a second and GPU, relative to the first of each.
void print_scaling(const Rows& rows, Predictor& p, const harness::StepConstants& k) {
  std::map<std::string, Rows> series;
  for (const Row* r : rows) {
    if (r->c.world < 128) continue;
    series[r->model + (r->c.zero2 ? ", zero2" : "") + ", micro-batch " +
           std::to_string(static_cast<int>(r->c.micro_batch))]
        .push_back(r);
  }
  for (auto& [name, list] : series) {
    std::sort(list.begin(), list.end(), [](const Row* a, const Row* b) { return a->c.world < b->c.world; });
    if (list.front()->c.world == list.back()->c.world) continue;
    std::printf("scaling   %-26s %4d -> %4d  measured %.3f  predicted %.3f\n", name.c_str(), list.front()->c.world,
                list.back()->c.world, list.front()->seconds / list.back()->seconds,
                p.seconds(*list.front(), k) / p.seconds(*list.back(), k));
  }
}

// Hardware without rows of its own: constants of the others say how far off they may be.
void interval(const Rows& rows, Predictor& p, const std::map<std::string, harness::StepConstants>& known) {
  constexpr double kMargin = 1.25;  // constants of one GPU on another are off by up to this, with newer kernels
  std::size_t inside = 0;
  for (const Row* r : rows) {
    double low = 1e30, high = 0;
    for (const auto& [gpu, k] : known) {
      low = std::min(low, p.seconds(*r, k)), high = std::max(high, p.seconds(*r, k));
    }
    low /= kMargin, high *= kMargin;
    const bool in = r->seconds >= low && r->seconds <= high;
    inside += in;
    std::printf("%-9s %-9s %-10s measured %8.4f s  interval %8.4f .. %8.4f s  %s\n", "interval", r->id.c_str(),
                r->model.c_str(), r->seconds, low, high, in ? "inside" : "OUTSIDE");
  }
  std::printf("interval of hardware without constants covers %zu of %zu rows\n", inside, rows.size());
}

int run(const char* path, const char* pairs, bool every_row) {
  const std::vector<Row> rows = read_rows(path);
  const std::vector<Decision> decisions = read_decisions(pairs);
  Predictor p;
  Families to_fit;
  std::map<std::string, Rows> transfer;
  Rows unknown;
  for (const Row& r : rows) {
    if (r.role == "fit") to_fit[family_of(r.gpu)].rows.push_back(&r);
    if (r.role == "transfer") transfer[family_of(r.gpu)].push_back(&r);
    if (r.role == "no_constants") unknown.push_back(&r);
  }
  for (const Decision& d : decisions) {
    const auto at = to_fit.find(family_of(d.gpu));
    if (at != to_fit.end() && d.need == "size") at->second.decisions.push_back(&d);
  }
  print_before(to_fit, p);
  const double contention = choose_contention(to_fit, p);
  std::map<std::string, harness::StepConstants> known;
  for (const auto& [gpu, family] : to_fit) {
    known[gpu] = calibrate(gpu, family, p, contention, every_row);
    print_scaling(family.rows, p, known[gpu]);
  }
  std::printf("\nother sources of the same hardware, constants as above\n");
  for (const auto& [gpu, list] : transfer) {
    Rows eager, compiled;
    for (const Row* r : list) {
      (r->compiled ? compiled : eager).push_back(r);
      print_row("transfer", *r, p.seconds(*r, known.at(gpu)));
    }
    print("transfer, eager or not stated", gpu, errors_of(ratios(eager, p, known.at(gpu))));
    print("transfer, compiled", gpu, errors_of(ratios(compiled, p, known.at(gpu))));
  }
  std::printf("\n");
  interval(unknown, p, known);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    if (argc >= 3) return bench::run(argv[1], argv[2], argc < 4 || std::string(argv[3]) != "--summary");
    std::fprintf(stderr, "usage: published_fit ROWS.csv DECISIONS.csv [--summary]\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "published_fit: %s\n", e.what());
  }
  return 2;
}
