// Least value of a function of a few variables without derivatives: Nelder and Mead's simplex, started again from where
// it ended, since a simplex may collapse.
#pragma once
#include <functional>
#include <vector>

namespace harness {

using Point = std::vector<double>;
Point least(const std::function<double(const Point&)>& f, Point start, double step, int restarts = 3);

}  // namespace harness
