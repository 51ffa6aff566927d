// Attention over slots, against a plain computation, and in two parts that are put together.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "sim/loop/slot_rows.hpp"

namespace kvsim::sim::test_slot_rows {
namespace {

constexpr std::size_t kDim = 16, kValueDim = 12, kQueries = 3;
constexpr double kScale = 0.25;

struct Slots {
  explicit Slots(std::size_t n) : keys(n * kDim), values(n * kValueDim) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (std::vector<float>* numbers : {&keys, &values, &queries})
      for (float& x : *numbers) x = normal(random);
    for (std::size_t i = 0; i < n; ++i)
      rows.push_back({&keys[i * kDim], &values[i * kValueDim], i % 3 == 0 ? 0.5F : 0.0F});
  }
  MatrixView view() const { return {queries.data(), kQueries, kDim, kDim}; }
  /// The logarithm of the sum of exp(logit) over some slots.
  double log_sum_exp(std::size_t query, std::span<const SlotRow> some) const {
    double sum = 0;
    for (const SlotRow& row : some) {
      double logit = static_cast<double>(row.bias);
      for (std::size_t c = 0; c < kDim; ++c)
        logit += kScale * static_cast<double>(queries[query * kDim + c]) * static_cast<double>(row.key[c]);
      sum += std::exp(logit);
    }
    return std::log(sum);
  }

  std::vector<float> keys, values, queries = std::vector<float>(kQueries * kDim);
  std::vector<SlotRow> rows{};
};

std::vector<float> attended(const Slots& slots, std::span<const SlotRow> some) {
  SlotRows attention;
  std::vector<float> out(kQueries * kValueDim);
  attention.attend({.scale = kScale}, slots.view(), some, kValueDim, out.data());
  return out;
}

}  // namespace

TEST_CASE("slots that are read in two places are put together exactly by their log-sum-exps") {
  // RetrievalAttention: what the device holds and what an index finds are attended apart.
  const Slots slots(40);
  const std::span<const SlotRow> all(slots.rows);
  const std::vector<float> whole = attended(slots, all);
  for (const std::size_t first : {1, 7, 20, 39}) {
    const std::vector<float> here = attended(slots, all.first(first)),
                             there = attended(slots, all.subspan(first));
    for (std::size_t query = 0; query < kQueries; ++query) {
      const double a = slots.log_sum_exp(query, all.first(first)),
                   b = slots.log_sum_exp(query, all.subspan(first));
      const double share = 1 / (1 + std::exp(b - a));
      for (std::size_t c = 0; c < kValueDim; ++c) {
        const std::size_t at = query * kValueDim + c;
        const double merged =
            share * static_cast<double>(here[at]) + (1 - share) * static_cast<double>(there[at]);
        CHECK(merged == Approx(static_cast<double>(whole[at])).epsilon(0).margin(2e-6));
      }
    }
  }
}

TEST_CASE("a slot that is not seen counts as if it were not there") {
  const Slots slots(9);
  std::vector<SlotRow> hidden = slots.rows;
  hidden[4].key = hidden[4].value = nullptr;
  std::vector<SlotRow> without = slots.rows;
  without.erase(without.begin() + 4);
  CHECK(attended(slots, hidden) == attended(slots, without));
}

}  // namespace kvsim::sim::test_slot_rows
