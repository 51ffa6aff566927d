// Tests mixtures of neighbours with fixed weights: fixed_kernel_merge.
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_fixed_kernel {

TEST_CASE("fixed_kernel_merge equals its definition") {
  struct Rule {
    double blend = 0.5, plain = 0.5;
    std::size_t reach = 10;
  };
  const std::vector<std::pair<std::string, Rule>> rules{
      {"fixed_kernel_merge", {}},
      {"fixed_kernel_merge(blend=1)", {.blend = 1}},
      {"fixed_kernel_merge(blend=0.3,reach=2,plain=0.25)", {0.3, 0.25, 2}},
      {"fixed_kernel_merge(blend=1,reach=0,plain=0)", {1, 0, 0}},
  };
  for (const auto& [text, rule] : rules)
    for (const bool columns : {false, true}) {
      const CacheShape shape{.representation = text,
                             .prompt = 50,
                             .n_lanes = 2,
                             .dim = 3,
                             .group = 2,
                             .columns = columns,
                             .length = 60,
                             .every = 4};
      RepresentedCache cache(shape);
      for (std::size_t lane = 0; lane < 2; ++lane) {
        std::set<std::pair<double, std::size_t>, std::greater<>> ranked;
        for (std::size_t p = 0; p < 50; p += 4) {
          double sum = 0;
          for (std::size_t head = 2 * lane; head < 2 * lane + 2; ++head)
            for (std::size_t i = p; i < 50; ++i) sum += static_cast<double>(cache.attention(i, head)[p]);
          ranked.emplace(sum, p);
        }
        auto plain = static_cast<std::size_t>(rule.plain * static_cast<double>(ranked.size()));
        for (const auto& [score, p] : ranked) {
          const bool stays = plain > 0;
          plain -= stays ? 1 : 0;
          for (std::size_t c = 0; c < 3; ++c) {
            double key = 0, value = 0, weights = 0;
            for (std::size_t t = 0; t < 50; ++t) {
              const double distance = std::abs(static_cast<double>(t) - static_cast<double>(p));
              if (distance > static_cast<double>(rule.reach)) continue;
              const double sigma = (2 * static_cast<double>(rule.reach) + 1) / 6;
              const double weight = std::exp(-distance * distance / (2 * sigma * sigma));
              key += weight * static_cast<double>(cache.recorded_key(t, c, lane));
              value += weight * static_cast<double>(cache.recorded_value(t, c, lane));
              weights += weight;
            }
            const double blend = stays ? 0 : rule.blend;
            CAPTURE(text, lane, p, c);
            CHECK(static_cast<double>(cache.key(p, c, lane)) ==
                  Approx((1 - blend) * static_cast<double>(cache.recorded_key(p, c, lane)) +
                         blend * key / weights)
                      .margin(1e-5));
            CHECK(static_cast<double>(cache.value(p, c, lane)) ==
                  Approx((1 - blend) * static_cast<double>(cache.recorded_value(p, c, lane)) +
                         blend * value / weights)
                      .margin(1e-5));
          }
        }
      }
      cache.append();
      CHECK(cache.key(50, 0) == cache.recorded_key(50, 0));
    }
}

TEST_CASE("fixed_kernel_merge worked by hand: three tokens at the edge") {
  // Kernel of width 3, sigma one half: neighbours weigh exp(-2). Token 0 has no earlier one.
  CacheShape shape{.representation = "fixed_kernel_merge(blend=1,reach=1,plain=0)",
                   .prompt = 3,
                   .dim = 1,
                   .length = 3,
                   .every = 2};
  shape.keys = {1, 2, 4};
  shape.values = {10, 20, 40};
  const RepresentedCache cache(shape);
  const double side = std::exp(-2.0);
  CHECK(cache.key(0, 0) == Approx((1 + 2 * side) / (1 + side)));
  CHECK(cache.value(2, 0) == Approx((40 + 20 * side) / (1 + side)));
}

TEST_CASE("fixed_kernel_merge mixes nothing where the whole prompt is kept, or with blend=0") {
  for (const std::size_t every : {1U, 3U})
    for (const char* text : {"fixed_kernel_merge", "fixed_kernel_merge(blend=0)"}) {
      RepresentedCache cache(
          {.representation = text, .prompt = 30, .n_lanes = 2, .length = 40, .every = every});
      cache.append();
      cache.append({2});
      const bool mixes = every > 1 && std::string(text) == "fixed_kernel_merge";
      CHECK((cache.exact_keys() == cache.rows().slots()) == !mixes);
      CHECK((cache.exact_values() == cache.rows().slots()) == !mixes);
      CHECK(cache.ledger() == exact_ledger(cache.rows().shape(), cache.rows().slots()));
    }
}

TEST_CASE("lococo is refused by its name, with what there is instead") {
  for (const char* text : {"h2o+lococo", "lococo", "h2o+lococo(blend=1)"}) {
    CAPTURE(text);
    try {
      parse_composition(text, builtin());
      FAIL("it was not refused");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK_THAT(error.what(), Catch::Contains("trained"));
      CHECK_THAT(error.what(), Catch::Contains("fixed_kernel_merge"));
    }
  }
}

}  // namespace kvsim::policy::test::test_representation_fixed_kernel
