// Tests merges as they are named: their bytes, their limits, and the systems they belong to.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_merges {

namespace {

/// Every merge of what leaves with its defaults and with every other value of its choice parameters.
std::vector<std::string> merges() {
  std::vector<std::string> out;
  for (const PolicySpec& spec : builtin().policies()) {
    if (!spec.name.ends_with("_merge") || spec.name == "fixed_kernel_merge") continue;
    out.push_back(spec.name);
    for (const kvsim::ParamSpec& param : spec.params)
      for (const std::string& choice : param.choices)
        if (choice != param.fallback) out.push_back(spec.name + "(" + param.name + "=" + choice + ")");
  }
  return out;
}

/// Whether keys, values and biases are the same bits.
bool same(const RepresentedCache& a, const RepresentedCache& b) {
  for (std::size_t lane = 0; lane < a.rows().shape().n_lanes; ++lane)
    for (std::size_t slot = 0; slot < a.rows().slots(); ++slot)
      if (!std::ranges::equal(a.rows().keys(lane).row(slot), b.rows().keys(lane).row(slot)) ||
          !std::ranges::equal(a.rows().values(lane).row(slot), b.rows().values(lane).row(slot)) ||
          a.rows().biases(lane)[slot] != b.rows().biases(lane)[slot])
        return false;
  return true;
}

}  // namespace

TEST_CASE("a merge takes what the tokens that are held take, and 16 bits each where it counts") {
  REQUIRE(merges().size() > 5);
  for (const std::string& text : merges()) {
    CAPTURE(text);
    RepresentedCache cache({.representation = text, .prompt = 50, .n_lanes = 2, .dim = 8, .every = 5});
    for (std::size_t step = 0; step < 12; ++step) {
      const kvsim::policy::Part part = *parse_composition("full+" + text, builtin()).representation;
      const bool counts = !part.params.is("mass", "none");
      CHECK(cache.ledger() == cache.closed_form());
      CHECK(cache.ledger().bits() == (10 + step) * 2 * (2 * 8 * 16 + (counts ? 16U : 0U)));
      CHECK(cache.ledger().indices == (counts ? (10 + step) * 2 * 16 : 0));
      cache.append();
    }
    const Ledger before = cache.ledger();
    for (std::size_t step = 0; step < 5; ++step) cache.append({3 + step});
    CHECK(cache.ledger() == before);  // what is merged takes nothing
    cache.append({7, 2, 5});
    CHECK(cache.ledger().bits() == before.bits() / 22 * 20);
  }
}

TEST_CASE("a merge changes nothing while nothing leaves") {
  for (const std::string& text : merges()) {
    CAPTURE(text);
    RepresentedCache cache({.representation = text, .prompt = 30, .n_lanes = 2, .dim = 8});
    for (int step = 0; step < 10; ++step) cache.append();
    CHECK(cache.exact_keys() == 40);
    CHECK(cache.exact_values() == 40);
  }
}

TEST_CASE("d2o_merge: a cosine above 1 merges nothing, -1 everything, and a rate of 1 every single token") {
  const auto cache = [](const std::string& text) {
    RepresentedCache out({.representation = text, .prompt = 60, .n_lanes = 1, .dim = 8, .every = 4});
    for (std::size_t step = 0; step < 20; ++step) out.append({step % 15});
    return out;
  };
  CHECK(same(cache("d2o_merge(gate=fixed,tau=1.5)"), cache("scalar(bits=16)")));
  CHECK_FALSE(same(cache("d2o_merge"), cache("scalar(bits=16)")));
  CHECK_FALSE(same(cache("d2o_merge"), cache("d2o_merge(gate=fixed,tau=-1)")));
  // With the whole way to the newest cosine, a token that leaves alone is always merged.
  RepresentedCache all({.representation = "d2o_merge(gate=fixed,tau=-1)", .prompt = 12, .dim = 8}),
      newest({.representation = "d2o_merge(rate=1)", .prompt = 12, .dim = 8});
  for (std::size_t step = 0; step < 20; ++step) {
    all.append({step % 12});
    newest.append({step % 12});
    CHECK(same(all, newest));
  }
  CHECK(all.exact_keys() < 12);
}

TEST_CASE("lookm_merge and elastic_merge merge the prompt, and what leaves later is lost") {
  for (const char* text : {"lookm_merge", "lookm_merge(merge=weighted,mass=log)", "elastic_merge"}) {
    CAPTURE(text);
    const CacheShape shape{.representation = text, .prompt = 40, .n_lanes = 2, .dim = 8, .every = 5};
    const RepresentedCache before(shape);
    RepresentedCache after(shape);
    CHECK(before.exact_keys() < 8);
    for (std::size_t step = 0; step < 4; ++step) after.append({step});
    for (std::size_t position = 20; position < 40; position += 5)  // slots 4 to 7
      for (std::size_t lane = 0; lane < 2; ++lane)
        for (std::size_t c = 0; c < 8; ++c) {
          CHECK(after.key(position, c, lane) == before.key(position, c, lane));
          CHECK(after.value(position, c, lane) == before.value(position, c, lane));
        }
    for (std::size_t position = 40; position < 44; ++position)
      CHECK(after.key(position, 3) == after.recorded_key(position, 3));
  }
}

TEST_CASE("lookm_merge(merge=averaged) is elastic_merge(nearest=cosine)") {
  const CacheShape averaged{
      .representation = "lookm_merge(merge=averaged)", .prompt = 90, .n_lanes = 2, .every = 6},
      nearest{.representation = "elastic_merge(nearest=cosine)", .prompt = 90, .n_lanes = 2, .every = 6},
      pivotal{.representation = "lookm_merge", .prompt = 90, .n_lanes = 2, .every = 6};
  CHECK(same(RepresentedCache(averaged), RepresentedCache(nearest)));
  CHECK_FALSE(same(RepresentedCache(averaged), RepresentedCache(pivotal)));
}

TEST_CASE("elastic_merge averages neighbours in the text, the half way to the earlier") {
  // Of every four tokens the first stays: 0 takes 1 and 2, 4 takes 3, 5 and 6, and 8, the last, takes 7 and 9
  // to 11.
  const RepresentedCache cache({.representation = "elastic_merge", .prompt = 12, .n_lanes = 2, .every = 4});
  const std::vector<std::vector<std::size_t>> together{{0, 1, 2}, {3, 4, 5, 6}, {7, 8, 9, 10, 11}};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t lane = 0; lane < 2; ++lane)
      for (std::size_t c = 0; c < 4; ++c) {
        double key = 0, value = 0;
        for (const std::size_t position : together[i]) {
          key += static_cast<double>(cache.recorded_key(position, c, lane));
          value += static_cast<double>(cache.recorded_value(position, c, lane));
        }
        const auto n = static_cast<double>(together[i].size());
        CHECK(cache.key(4 * i, c, lane) == Approx(key / n).margin(1e-6));
        CHECK(cache.value(4 * i, c, lane) == Approx(value / n).margin(1e-6));
      }
}

TEST_CASE("kvmerger_merge: below every cosine with a wide Gaussian it is elastic_merge, at 1 an eviction") {
  const auto cache = [](const char* text) {
    return RepresentedCache({.representation = text, .prompt = 60, .n_lanes = 2, .dim = 8, .every = 7});
  };
  CHECK(same(cache("kvmerger_merge(epsilon=1)"), cache("scalar(bits=16)")));
  const RepresentedCache all = cache("kvmerger_merge(epsilon=-1,sigma=1e6,mass=none)"),
                         mean = cache("elastic_merge");
  for (std::size_t position = 0; position < 60; position += 7)
    for (std::size_t c = 0; c < 8; ++c) {
      CHECK(all.key(position, c, 1) == Approx(mean.key(position, c, 1)).margin(1e-5));
      CHECK(all.value(position, c, 1) == Approx(mean.value(position, c, 1)).margin(1e-5));
    }
  // A narrow one leaves what stays as it is.
  CHECK(cache("kvmerger_merge(epsilon=-1,sigma=0.01,mass=none)").exact_keys() == 9);
}

TEST_CASE("the preset d2o is the system, d2o.no_merge what it was") {
  const Composition whole = parse_composition("d2o", builtin()),
                    part = parse_composition("d2o.no_merge", builtin());
  REQUIRE(whole.representation);
  CHECK(whole.representation->spec->name == "d2o_merge");
  CHECK_FALSE(part.representation);
  CHECK(whole.eviction.text() == part.eviction.text());
  CHECK(whole.allocation.text() == part.allocation.text());
  CHECK(part.allocation.spec->name == "d2o_layers");
}

}  // namespace kvsim::policy::test::test_representation_merges
