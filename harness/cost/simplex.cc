#include "harness/cost/simplex.h"

#include <algorithm>
#include <utility>

namespace harness {
namespace {

using Corner = std::pair<double, Point>;
constexpr int kRounds = 600;
constexpr double kFlat = 1e-12;

Point along(const Point& from, const Point& to, double t) {
  Point p(from.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = from[i] + t * (to[i] - from[i]);
  return p;
}

Point middle_of(const std::vector<Corner>& s) {
  Point middle(s.size() - 1);
  for (std::size_t i = 0; i + 1 < s.size(); ++i)
    for (std::size_t j = 0; j < middle.size(); ++j) middle[j] += s[i].second[j] / static_cast<double>(middle.size());
  return middle;
}

Point once(const std::function<double(const Point&)>& f, const Point& start, double step) {
  std::vector<Corner> s = {{f(start), start}};
  for (std::size_t i = 0; i < start.size(); ++i) {
    Point p = start;
    p[i] += step;
    s.push_back({f(p), p});
  }
  const auto better = [](const Corner& a, const Corner& b) { return a.first < b.first; };
  for (int round = 0; round < kRounds; ++round) {
    std::sort(s.begin(), s.end(), better);
    if (s.back().first - s.front().first < kFlat) break;
    const Point middle = middle_of(s);
    const auto at = [&](double t) -> Corner {
      Point p = along(s.back().second, middle, t);
      return {f(p), p};
    };
    if (Corner mirrored = at(2); mirrored.first < s.front().first) {
      Corner further = at(3);
      s.back() = further.first < mirrored.first ? std::move(further) : std::move(mirrored);
    } else if (mirrored.first < s[s.size() - 2].first) {
      s.back() = std::move(mirrored);
    } else if (Corner inside = at(0.5); inside.first < s.back().first) {
      s.back() = std::move(inside);
    } else {
      for (std::size_t i = 1; i < s.size(); ++i) {
        Point p = along(s.front().second, s[i].second, 0.5);
        s[i] = {f(p), p};
      }
    }
  }
  return std::min_element(s.begin(), s.end(), better)->second;
}

}  // namespace

Point least(const std::function<double(const Point&)>& f, Point p, double step, int restarts) {
  for (int i = 0; i < restarts; ++i) p = once(f, p, step);
  return p;
}

}  // namespace harness
