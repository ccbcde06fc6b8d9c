#include "bench/published_fit/fit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "harness/cost/simplex.h"
#include "harness/cost/straggler.h"

namespace bench {
namespace {

double between(double low, double high, double x) { return low + (high - low) / (1 + std::exp(-x)); }

harness::StepConstants constants_of(const harness::Point& p, const FitOptions& o) {
  harness::StepConstants k;
  k.gemm_efficiency = between(0.7, 1, p[0]);
  k.attention_tflops = std::exp(p[1]);
  k.passes = std::exp(p[2]);
  k.kernel_us = between(1, 14, p[3]);
  k.copy_traffic = std::exp(p[4]);
  k.boundary_us = std::exp(p[5]);
  k.contention = o.as_before ? std::exp(p[6]) : o.contention;
  k.attention_backward_tflops = o.as_before ? k.attention_tflops : std::exp(p[6]);
  if (o.as_before) k.copy_traffic = 0, k.boundary_us = 0;
  k.jitter = o.jitter;
  return k;
}

// "1.5" of "wrap=block checkpoint=none" and "wrap": the word behind the name.
std::string word(const std::string& text, const std::string& key, const std::string& otherwise) {
  const std::size_t at = (" " + text).find(" " + key + "=");
  if (at == std::string::npos) return otherwise;
  const std::size_t begin = at + key.size() + 1;
  return text.substr(begin, text.find(' ', begin) - begin);
}

// False: an unknown word.
bool set_checkpoint(const std::string& word, harness::StepCase& c) {
  constexpr double kSelective = 0.35;  // of a forward, for the usual choice of operators
  c.recompute = c.again = 0;
  if (word == "full" || word == "block") {
    c.recompute = 1;
  } else if (word == "selective") {
    c.again = kSelective;
  } else if (word.starts_with("every:")) {
    c.recompute = 1 / std::stod(word.substr(6));
  } else {
    return word == "none";
  }
  return true;
}

// False: the closed form does not know it.
bool apply(const std::string& settings, harness::StepCase& c) {
  const std::string wrap = word(settings, "wrap", "block"), strategy = word(settings, "strategy", "full_shard");
  if (wrap == "root") {
    c.unit_blocks = 0;
  } else if (wrap.starts_with("blocks:")) {
    c.unit_blocks = std::stod(wrap.substr(7));
  } else if (wrap != "block") {
    return false;
  }
  if (!set_checkpoint(word(settings, "checkpoint", "none"), c)) return false;
  c.accumulate = std::stod(word(settings, "accumulate", std::to_string(c.accumulate)));
  c.backward_prefetch = word(settings, "backward_prefetch", "pre") != "none";
  c.forward_prefetch = word(settings, "forward_prefetch", "1") != "0";
  c.zero2 = strategy == "shard_grad_op" || word(settings, "reshard_after_forward", "auto") == "false";
  if (strategy.starts_with("hybrid_shard:")) {
    c.shard_group = std::stoi(strategy.substr(13));
  } else if (strategy != "full_shard" && strategy != "shard_grad_op") {
    return false;
  }
  return true;
}

using Cells = std::map<std::string, std::string>;

std::vector<Cells> read_table(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream s(text);
    for (std::string cell; std::getline(s, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> header = split(line);
  std::vector<Cells> rows;
  while (std::getline(in, line)) {
    Cells row;
    const std::vector<std::string> cells = split(line);
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

// What step times and decisions have in common.
harness::StepCase case_of(const Cells& cell) {
  const auto n = [&](const char* key) { return std::stod(cell.at(key)); };
  harness::StepCase c;
  c.family = cell.at("family");
  c.layers = n("layers"), c.dim = n("dim"), c.heads = n("heads"), c.kv_heads = n("kv_heads"), c.ffn = n("ffn");
  c.vocab = n("vocab"), c.seq = n("seq"), c.world = static_cast<int>(n("world"));
  c.reduce_bytes = n("reduce_bytes"), c.micro_batch = n("micro_batch"), c.accumulate = n("accumulate");
  c.compiled = cell.at("compile") == "1";
  c.slowest = harness::expected_maximum(c.world);
  return c;
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
  std::vector<Row> rows;
  for (const Cells& cell : read_table(path)) {
    Row r;
    r.id = cell.at("row_id"), r.source = cell.at("source_set"), r.role = cell.at("role"), r.model = cell.at("model");
    r.gpu = cell.at("gpu"), r.network = cell.at("network"), r.compiled = cell.at("compile") == "1";
    r.c = case_of(cell);
    r.c.shard_group = std::stoi(cell.at("shard_group"));
    r.c.zero2 = cell.at("zero2") == "1";
    set_checkpoint(cell.at("checkpoint"), r.c);
    r.seconds = std::stod(cell.at("step_s"));
    rows.push_back(std::move(r));
  }
  return rows;
}

std::vector<Decision> read_decisions(const std::string& path) {
  std::vector<Decision> decisions;
  for (const Cells& cell : read_table(path)) {
    Decision d;
    d.id = cell.at("id"), d.kind = cell.at("kind"), d.gpu = cell.at("gpu"), d.network = cell.at("network");
    d.need = cell.at("need");
    d.from = d.to = case_of(cell);
    d.ratio = std::stod(cell.at("ratio")), d.noise = std::stod(cell.at("noise"));
    if (apply(cell.at("from"), d.from) && apply(cell.at("to"), d.to)) decisions.push_back(std::move(d));
  }
  return decisions;
}

double Predictor::seconds(const harness::StepCase& c, const std::string& gpu, const std::string& network,
                          const harness::StepConstants& k) {
  const std::string key = gpu + "," + network + "," + std::to_string(c.world);
  auto at = std::find_if(models_.begin(), models_.end(), [&](const auto& m) { return m.first == key; });
  if (at == models_.end()) {
    models_.emplace_back(key, harness::make_cost_model(gpu, c.world, 0, network));
    at = std::prev(models_.end());
  }
  return estimate_step(c, at->second, k).seconds;
}

double Predictor::seconds(const Row& row, const harness::StepConstants& k) {
  harness::StepConstants own = k;
  if (row.role != "fit") own.boundary_us = 0;  // of the program whose rows are fitted
  return seconds(row.c, row.gpu, row.network, own);
}

double Predictor::ratio(const Decision& d, const harness::StepConstants& k) {
  return seconds(d.to, d.gpu, d.network, k) / seconds(d.from, d.gpu, d.network, k);
}

double loss_of(const std::vector<const Row*>& rows, const std::vector<const Decision*>& decisions, Predictor& predictor,
               const harness::StepConstants& k) {
  constexpr double kSoft = 0.03;    // errors above it count by their size, not their square
  constexpr double kDecision = 10;  // rows of step times that a pair weighs as much as
  const auto soft = [](double z) { return 2 * (std::sqrt(1 + z * z) - 1); };
  double sum = 0;
  for (const Row* r : rows) sum += soft(std::log(predictor.seconds(*r, k) / r->seconds) / kSoft);
  for (const Decision* d : decisions) sum += kDecision * soft(std::log(predictor.ratio(*d, k) / d->ratio) / kSoft);
  return sum;
}

harness::StepConstants fit(const std::vector<const Row*>& rows, const std::vector<const Decision*>& decisions,
                           Predictor& predictor, const FitOptions& options) {
  harness::Point at = {
      1.5, std::log(120), std::log(40), 0, std::log(7), std::log(3e4), options.as_before ? -0.5 : std::log(90)};
  const auto loss = [&](const harness::Point& p) {
    return loss_of(rows, decisions, predictor, constants_of(p, options));
  };
  return constants_of(harness::least(loss, at, 0.3), options);
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
