#include "bench/published_fit/fit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "harness/cost/simplex.h"

namespace bench {
namespace {

harness::StepConstants constants_of(const harness::Point& p) {
  return {std::exp(p[0]), std::exp(p[1]), std::exp(p[2]), std::exp(p[3]), std::exp(p[4])};
}

std::vector<double> ranks_of(const std::vector<double>& v) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return v[a] < v[b]; });
  std::vector<double> ranks(v.size());
  for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

}  // namespace

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::string line;
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream s(text);
    for (std::string cell; std::getline(s, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::getline(in, line);
  const std::vector<std::string> header = split(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    std::map<std::string, std::string> cell;
    const std::vector<std::string> cells = split(line);
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) cell[header[i]] = cells[i];
    const auto n = [&](const char* key) { return std::stod(cell.at(key)); };
    Row r;
    r.id = cell.at("row_id"), r.source = cell.at("source_set"), r.role = cell.at("role"), r.model = cell.at("model");
    r.gpu = cell.at("gpu"), r.network = cell.at("network"), r.compiled = cell.at("compile") == "1";
    const std::string recompute = cell.at("checkpoint");
    r.c = {cell.at("family"),
           n("layers"),
           n("dim"),
           n("heads"),
           n("kv_heads"),
           n("ffn"),
           n("vocab"),
           n("seq"),
           static_cast<int>(n("world")),
           static_cast<int>(n("shard_group")),
           n("reduce_bytes"),
           n("zero2") != 0,
           recompute == "full"        ? 1.0
           : recompute == "selective" ? 0.35
                                      : 0.0,
           n("micro_batch"),
           n("accumulate"),
           cell.at("compile") == "1"};
    r.seconds = n("step_s");
    rows.push_back(std::move(r));
  }
  return rows;
}

double Predictor::seconds(const Row& row, const harness::StepConstants& k) {
  const std::string key = row.gpu + "," + row.network + "," + std::to_string(row.c.world);
  auto at = std::find_if(models_.begin(), models_.end(), [&](const auto& m) { return m.first == key; });
  if (at == models_.end()) {
    models_.emplace_back(key, harness::make_cost_model(row.gpu, row.c.world, 0, row.network));
    at = std::prev(models_.end());
  }
  return estimate_step(row.c, at->second, k).seconds;
}

harness::StepConstants fit(const std::vector<const Row*>& rows, Predictor& predictor) {
  const auto loss = [&](const harness::Point& p) {
    const harness::StepConstants k = constants_of(p);
    double sum = 0;
    for (const Row* r : rows) {
      const double z = std::log(predictor.seconds(*r, k) / r->seconds) / 0.03;
      sum += 2 * (std::sqrt(1 + z * z) - 1);
    }
    return sum;
  };
  return constants_of(
      harness::least(loss, {std::log(0.9), std::log(120), std::log(40), std::log(300), std::log(0.9)}, 0.3));
}

Errors errors_of(std::vector<double> ratios) {
  Errors e;
  e.rows = ratios.size();
  if (ratios.empty()) return e;
  for (double& r : ratios) r = std::abs(r - 1);
  std::sort(ratios.begin(), ratios.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(ratios.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, ratios.size() - 1);
    return ratios[low] + (at - static_cast<double>(low)) * (ratios[high] - ratios[low]);
  };
  e.median = quantile(0.5), e.p90 = quantile(0.9), e.worst = ratios.back();
  return e;
}

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double n = static_cast<double>(a.size()), mean = (n - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

}  // namespace bench
