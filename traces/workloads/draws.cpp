#include "traces/workloads/draws.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::workload {

Draws::Draws(std::uint64_t seed, std::string_view kind, std::uint64_t index)
    : first_key_(combine({seed, key_of("workload"), key_of(kind)})),
      key_(combine({first_key_, index})),
      index_(index),
      samples_key_(key_) {}

Draws Draws::shared(std::uint64_t number) const {
  Draws out = *this;
  out.samples_key_ = combine({first_key_, key_of("shared"), number});
  out.key_ = combine({out.samples_key_, group_});
  out.index_ = number;
  return out;
}

Draws Draws::example(std::uint64_t number) const {
  Draws out = *this;
  out.key_ = combine({key_, key_of("example"), number});
  out.group_ = number + 1;
  return out;
}

std::vector<std::uint64_t> Draws::places(std::uint64_t pool, std::uint64_t n, std::string_view what) const {
  Draws prompt = *this;
  prompt.key_ = samples_key_;
  std::vector<std::uint64_t> places = prompt.order(pool, what);
  const std::uint64_t first = n < pool ? group_ * n : group_ * (pool / (kMaxExamples + 1));
  if (n < pool && first + n > pool)
    usage_error("the words of so many facts do not suffice for this many examples", "--examples",
                "At most " + std::to_string(pool / n - 1) + ".");
  std::rotate(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(first), places.end());
  places.resize(n);
  return places;
}

double Draws::uniform(std::string_view what, std::uint64_t i) const {
  return uniform01(combine({key_, key_of(what), i}));
}

std::uint64_t Draws::below(std::uint64_t n, std::string_view what, std::uint64_t i) const {
  return static_cast<std::uint64_t>(uniform(what, i) * static_cast<double>(n));
}

std::vector<std::uint64_t> Draws::order(std::uint64_t n, std::string_view what) const {
  std::vector<std::uint64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (std::uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[below(i, what, i)]);
  return order;
}

double Draws::depth() const {
  const double golden = 0.6180339887498949;
  const double turns =
      uniform01(combine({first_key_, key_of("depth")})) + golden * static_cast<double>(index_);
  return turns - std::floor(turns);
}

}  // namespace kvsim::workload
