// Agreement of rankings, worked by hand.
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/statistics/rank_agreement.hpp"

namespace kvsim::analysis::test_rank_agreement {

TEST_CASE("equal values share the mean of their ranks") {
  CHECK(average_ranks(std::vector<double>{0.3, 0.1, 0.2}) == std::vector<double>{3, 1, 2});
  // 5 5 take ranks 2 and 3, 7 7 7 ranks 4 to 6.
  CHECK(average_ranks(std::vector<double>{7, 5, 7, 1, 5, 7}) == std::vector<double>{5, 2.5, 5, 1, 2.5, 5});
  CHECK(average_ranks(std::vector<double>{2, 2, 2, 2}) == std::vector<double>(4, 2.5));
  CHECK(average_ranks({}).empty());
}

TEST_CASE("Kendall's W and the mean of Spearman's correlations, worked by hand") {
  const Judgements same{{1, 2, 3}, {10, 20, 30}, {0, 0.5, 8}};
  CHECK(*concordance(same) == 1);
  CHECK(*mean_rank_correlation(same) == Approx(1));
  // Opposite: rank sums 4 4 4.
  CHECK(*concordance({{1, 2, 3}, {3, 2, 1}}) == 0);
  CHECK(*mean_rank_correlation({{1, 2, 3}, {3, 2, 1}}) == Approx(-1));
  // Ranks 1 2 3 4, 2 1 3 4, 1 2 4 3: sums 4 5 10 11, mean 7.5, squares 2 (3.5^2 + 2.5^2) = 37.
  // W = 12 * 37 / (9 * 60) = 37 / 45. Spearman 1 - 6 sum d^2 / 60: 0.8, 0.8, 0.6; and (3 W - 1) / 2 = 11
  // / 15.
  const Judgements three{{1, 2, 3, 4}, {2, 1, 3, 4}, {1, 2, 4, 3}};
  CHECK(*concordance(three) == Approx(37.0 / 45));
  CHECK(*mean_rank_correlation(three) == Approx(2.2 / 3));
  CHECK(*mean_rank_correlation(three) == Approx((3 * *concordance(three) - 1) / 2));
  // Ties: ranks 1.5 1.5 3 and 1 2 3. Sums 2.5 3.5 6, mean 4, squares 6.5; 12 * 6.5 / (4 * 24 - 2 * 6) = 13
  // / 14. Pearson of the ranks: 1.5 / sqrt(1.5 * 2).
  const Judgements tied{{5, 5, 9}, {1, 2, 3}};
  CHECK(*concordance(tied) == Approx(13.0 / 14));
  CHECK(*mean_rank_correlation(tied) == Approx(1.5 / std::sqrt(3.0)));
}

TEST_CASE("Kendall's tau: pairs in the same order less those in opposite order, over all pairs") {
  const std::vector<double> order{1, 2, 3, 4}, reversed{9, 7, 5, 3}, one_swap{1, 2, 4, 3};
  CHECK(*kendall_tau(order, order) == 1);
  CHECK(*kendall_tau(order, reversed) == -1);
  CHECK(*kendall_tau(order, one_swap) == Approx(4.0 / 6));  // five pairs alike, one not
  // Ties: 5 pairs are apart in `tied`, 6 in `order`, all 5 alike.
  const std::vector<double> tied{1, 2, 3, 3};
  CHECK(*kendall_tau(order, tied) == Approx(5 / std::sqrt(30.0)));
  CHECK_FALSE(kendall_tau(order, std::vector<double>{2, 2, 2, 2}));
  CHECK_FALSE(kendall_tau(std::vector<double>{}, std::vector<double>{}));
}

TEST_CASE("agreement that does not exist") {
  CHECK_FALSE(concordance({}));
  CHECK_FALSE(concordance({{1, 2, 3}}));
  CHECK_FALSE(concordance({{1}, {1}}));
  CHECK_FALSE(concordance({{4, 4, 4}, {1, 1, 1}}));
  CHECK_FALSE(mean_rank_correlation({{1, 2, 3}}));
  CHECK_FALSE(mean_rank_correlation({{4, 4, 4}, {1, 2, 3}}));
  // The undecided judge counts in W: sums 3 4 5, squares 2, 12 * 2 / (4 * 24 - 2 * 24) = 0.5.
  CHECK(*concordance({{4, 4, 4}, {1, 2, 3}}) == Approx(0.5));
  // ... and not among the pairs.
  CHECK(*mean_rank_correlation({{4, 4, 4}, {1, 2, 3}, {1, 2, 3}}) == Approx(1));
}

}  // namespace kvsim::analysis::test_rank_agreement
