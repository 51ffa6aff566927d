// Tests the merging of values by chance: cam.
#include <catch2/catch.hpp>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_cam {

namespace {

struct SlowToken {
  std::vector<double> value;
  double sum = 0, last = 0, rows = 0;

  double attention(const std::string& which) const {
    return which == "last" ? last : which == "sum" ? sum : sum / rows;
  }
};

struct SlowRule {
  std::size_t tokens = 32;
  std::string attention = "last", against = "later";
  bool sampled = true, prompt = false;
};

/// One lane, token by token, in double and without slots.
class SlowCam {
 public:
  SlowCam(const RepresentedCache& cache, const CacheShape& shape, const SlowRule& rule, std::size_t lane)
      : cache_(&cache), shape_(shape), rule_(rule), lane_(lane) {
    std::map<std::size_t, SlowToken> leaving;
    for (std::size_t p = 0; p < shape.prompt; ++p) {
      SlowToken token = recorded(p);
      for (std::size_t i = p; i < shape.prompt; ++i) {
        token.last = 0;
        for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head) {
          const auto paid = static_cast<double>(cache.attention(i, head)[p]);
          token.sum += paid;
          token.last += paid;
        }
        ++token.rows;
      }
      (p % shape.every == 0 ? tokens_ : leaving)[p] = token;
    }
    if (rule.prompt)
      for (const auto& [position, token] : leaving) leave(position, token);
  }
  void append(std::size_t position, const std::vector<std::size_t>& leaving) {
    std::map<std::size_t, SlowToken> gone;
    for (const std::size_t p : leaving) {
      gone[p] = tokens_.at(p);
      tokens_.erase(p);
    }
    for (const auto& [p, token] : gone) leave(p, token);
    tokens_[position] = recorded(position);
    for (auto& [p, token] : tokens_) {
      token.last = 0;
      for (std::size_t head = lane_ * shape_.group; head < (lane_ + 1) * shape_.group; ++head)
        token.last += static_cast<double>(cache_->weight(p, head));
      token.sum += token.last;
      ++token.rows;
    }
  }
  const std::map<std::size_t, SlowToken>& tokens() const { return tokens_; }

 private:
  SlowToken recorded(std::size_t p) const {
    SlowToken token;
    for (std::size_t c = 0; c < shape_.dim; ++c)
      token.value.push_back(static_cast<double>(cache_->recorded_value(p, c, lane_)));
    return token;
  }
  void leave(std::size_t position, const SlowToken& leaving) {
    std::vector<SlowToken*> next;
    double total = 0, n = 0, largest = 0;
    for (auto& [p, token] : tokens_) {
      const double attention = token.attention(rule_.attention);
      largest = std::max(largest, attention);
      if (p < position) continue;
      if (rule_.against != "next" || next.size() < rule_.tokens) {
        total += attention;
        ++n;
      }
      if (next.size() < rule_.tokens) next.push_back(&token);
    }
    if (next.empty()) return;
    const double against = rule_.against == "largest" ? largest : total / n;
    double probability = std::min(1.0, leaving.attention(rule_.attention) / against);
    if (rule_.sampled) {
      const double draw = uniform01(combine({shape_.run_seed, key_of("cam"), 0, lane_, position}));
      probability = draw < probability ? 1 : 0;
    }
    for (SlowToken* token : next)
      for (std::size_t c = 0; c < shape_.dim; ++c)
        token->value[c] += probability * leaving.value[c] / static_cast<double>(next.size());
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  SlowRule rule_;
  std::size_t lane_;
  std::map<std::size_t, SlowToken> tokens_;
};

}  // namespace

TEST_CASE("cam equals a slow version of its definition, while tokens come and leave") {
  const std::vector<std::pair<std::string, SlowRule>> rules{
      {"cam", {}},
      {"cam(tokens=16,attention=sum,against=next,prompt=merge)", {16, "sum", "next", true, true}},
      {"cam(tokens=4096,attention=mean,against=largest,prompt=merge)", {4096, "mean", "largest", true, true}},
      {"cam(tokens=3,against=next,rule=expected)", {3, "last", "next", false}},
      {"cam(tokens=2,attention=mean,rule=expected,prompt=merge)", {2, "mean", "later", false, true}},
      {"cam(attention=sum,against=largest,rule=expected)", {32, "sum", "largest", false}},
  };
  for (const auto& [text, rule] : rules)
    for (const bool columns : {false, true}) {
      const CacheShape shape{.representation = text,
                             .prompt = 61,
                             .n_lanes = 2,
                             .dim = 6,
                             .group = 2,
                             .columns = columns,
                             .length = 100,
                             .run_seed = 5,
                             .every = 3};
      RepresentedCache cache(shape);
      std::vector<SlowCam> slow;
      for (std::size_t lane = 0; lane < 2; ++lane) slow.emplace_back(cache, shape, rule, lane);
      for (std::size_t p = shape.prompt; p < shape.length; ++p) {
        CAPTURE(text, p);
        for (std::size_t lane = 0; lane < 2; ++lane) {
          REQUIRE(cache.rows().slots() == slow[lane].tokens().size());
          for (const auto& [position, token] : slow[lane].tokens())
            for (std::size_t c = 0; c < shape.dim; ++c) {
              REQUIRE(static_cast<double>(cache.value(position, c, lane)) ==
                      Approx(token.value[c]).margin(1e-4));
              REQUIRE(cache.key(position, c, lane) == cache.recorded_key(position, c, lane));
            }
        }
        std::vector<std::size_t> victims, leaving;
        if (p % 4 != 0) victims.push_back(7 * p % cache.rows().slots());
        if (p % 3 == 0 && p % 4 != 0) victims.push_back((victims[0] + 5) % cache.rows().slots());
        for (const std::size_t slot : victims)
          leaving.push_back(static_cast<std::size_t>(cache.rows().positions()[slot]));
        cache.append(victims);
        for (SlowCam& lane : slow) lane.append(p, leaving);
      }
    }
}

TEST_CASE("cam worked by hand: what even attention spreads, and where") {
  // Every row attends evenly, so that a token that leaves has the mean attention and is certain to be merged.
  // Of seven tokens 0, 2, 4 and 6 stay. With m = 2, the value of 1 goes in halves into 2 and 4, that of 3
  // into 4 and 6, and that of 5 whole into 6, since no other follows.
  CacheShape shape{.representation = "cam(tokens=2,prompt=merge)", .prompt = 7, .dim = 1, .every = 2};
  shape.keys.assign(7, 0);
  shape.values = {1, 10, 100, 1000, 10000, 100000, 1000000};
  RepresentedCache cache(shape);
  CHECK(cache.value(0, 0) == 1);
  CHECK(cache.value(2, 0) == 100 + 5);
  CHECK(cache.value(4, 0) == 10000 + 5 + 500);
  CHECK(cache.value(6, 0) == 1000000 + 500 + 100000);
  CHECK(cache.ledger() == cache.closed_form());
  CHECK(cache.ledger() == exact_ledger({1, 1, 1, 16}, 4));
}

TEST_CASE("cam drops what has no later token, and what is attended by nobody") {
  // The newest leaves while no token behind it stays.
  RepresentedCache last({.representation = "cam(rule=expected)", .prompt = 5, .dim = 2});
  last.append({4});
  CHECK(last.exact_values() == 5);
  // A key against the last query, so far that its weight is 0, and one towards it. Token 3 is the last.
  CacheShape shape{.representation = "cam(rule=expected,prompt=merge)", .prompt = 4, .dim = 1, .every = 2};
  shape.keys = {0, 0, 0, 0};
  shape.values = {1, 10, 100, 1000};
  const float query = RepresentedCache(shape).query(3, 0);
  shape.keys[1] = -200 / query;
  CHECK(RepresentedCache(shape).value(2, 0) == 100);
  shape.keys[1] = 2 / query;
  CHECK(RepresentedCache(shape).value(2, 0) == 110);
}

TEST_CASE("cam's draws have the mean that rule=expected adds, and follow from the seed alone") {
  // What token 1 adds to token 2, over 2,000 seeds: its probability, within four standard errors.
  CacheShape shape{.representation = "cam(tokens=1,against=next,rule=expected,prompt=merge)",
                   .prompt = 3,
                   .dim = 1,
                   .length = 3,
                   .every = 2};
  shape.keys = {0, 0, 0};
  shape.values = {0, 1, 0};
  // The last query must pay token 1 less than token 2, or it would always be merged.
  const RepresentedCache even(shape);
  shape.keys[1] = even.query(2, 0) > 0 ? -1.0F : 1.0F;
  const auto probability = static_cast<double>(RepresentedCache(shape).value(2, 0));
  REQUIRE(probability > 0);
  REQUIRE(probability < 1);
  shape.representation = "cam(tokens=1,against=next,prompt=merge)";
  double sum = 0;
  for (shape.run_seed = 0; shape.run_seed < 2000; ++shape.run_seed) {
    const float added = RepresentedCache(shape).value(2, 0);
    CHECK((added == 0 || added == 1));
    CHECK(added == RepresentedCache(shape).value(2, 0));
    sum += static_cast<double>(added);
  }
  CHECK(std::abs(sum / 2000 - probability) < 4 * std::sqrt(probability * (1 - probability) / 2000));
}

TEST_CASE("cam changes nothing while nothing leaves, and keys never") {
  for (const char* text : {"cam", "cam(attention=sum)", "cam(attention=mean,rule=expected)"}) {
    RepresentedCache cache({.representation = text, .prompt = 30, .n_lanes = 2, .dim = 8});
    for (int step = 0; step < 10; ++step) cache.append();
    CHECK(cache.exact_values() == 40);
    CHECK(cache.ledger() == cache.closed_form());
    for (std::size_t step = 0; step < 10; ++step) cache.append({2 * step, 2 * step + 1});
    CHECK(cache.exact_keys() == cache.rows().slots());
    CHECK(cache.exact_values() < cache.rows().slots());
  }
}

TEST_CASE("cam drops what is cut from the prompt, unless it is told to merge it") {
  for (const bool merges : {false, true}) {
    const RepresentedCache cache(
        {.representation = merges ? "cam(attention=sum,prompt=merge)" : "cam(attention=sum)",
         .prompt = 40,
         .dim = 3,
         .every = 4});
    CHECK((cache.exact_values() == 10) == !merges);
  }
}

TEST_CASE("cam.generation is the authors' code for generation") {
  const Composition preset = parse_composition("cam.generation", builtin());
  REQUIRE(preset.representation);
  CHECK(preset.eviction.spec->name == "streaming_llm");
  CHECK(preset.representation->text() ==
        "cam(tokens=16,attention=sum,against=next,prompt=drop,rule=sampled)");
}

}  // namespace kvsim::policy::test::test_representation_cam
