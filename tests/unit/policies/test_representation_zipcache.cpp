// Tests codes by saliency: zipcache.
#include <catch2/catch.hpp>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_zipcache {

namespace {

struct SlowToken {
  std::vector<double> key, value;
  double score = 0;
  std::vector<double> paid;  ///< by each row since it joined, until it is coded
  bool coded = false, salient = false;
};

struct SlowRule {
  int hi = 4, lo = 2;
  double share = 0.6, recent = 0.05, random = 0.05;
  std::string normalise = "probes";
  std::size_t every = 100;
  bool separable = true, last = false;
};

/// One lane, token by token, in double and without slots.
class SlowZip {
 public:
  SlowZip(const RepresentedCache& cache, const CacheShape& shape, const SlowRule& rule, std::size_t lane)
      : cache_(&cache), shape_(shape), rule_(rule), lane_(lane) {
    const std::vector<std::size_t> probes = this->probes(shape.prompt, 0);
    for (std::size_t p = 0; p < shape.prompt; ++p) {
      join(p);
      for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head) {
        double sum = 0, seeing = 0;
        for (const std::size_t probe : probes)
          if (probe >= p) {
            sum += static_cast<double>(cache.attention(probe, head)[p]);
            ++seeing;
          }
        if (rule.normalise == "none") seeing = 1;
        if (rule.normalise == "rows") seeing = static_cast<double>(shape.prompt - p);
        tokens_[p].score += sum / seeing;
      }
    }
    code();
  }
  void append(std::size_t position, const std::vector<std::size_t>& leaving) {
    for (const std::size_t p : leaving) tokens_.erase(p);
    join(position);
    for (auto& [p, token] : tokens_) {
      if (token.coded) continue;
      token.paid.push_back(0);
      for (std::size_t head = lane_ * shape_.group; head < (lane_ + 1) * shape_.group; ++head)
        if (rule_.share > 0) token.paid.back() += static_cast<double>(cache_->weight(p, head));
    }
    const std::size_t generated = position + 1 - shape_.prompt;
    if (generated % rule_.every != 0) return;
    std::vector<std::size_t> rows = probes(rule_.every, generated / rule_.every);
    if (rule_.last) rows = {rule_.every - 1};
    for (auto& [p, token] : tokens_) {
      if (token.coded) continue;
      // The token has seen the latest of the rows, as many as it was paid by.
      const std::size_t first = rule_.every - token.paid.size();
      double seeing = 0;
      for (const std::size_t row : rows)
        if (row >= first) {
          token.score += token.paid[row - first];
          ++seeing;
        }
      if (rule_.normalise == "rows") seeing = static_cast<double>(token.paid.size());
      if (rule_.normalise != "none" && !rule_.last) token.score /= seeing;
    }
    code();
  }
  const std::map<std::size_t, SlowToken>& tokens() const { return tokens_; }

 private:
  void join(std::size_t p) {
    SlowToken token;
    for (std::size_t c = 0; c < shape_.dim; ++c) {
      token.key.push_back(static_cast<double>(cache_->recorded_key(p, c, lane_)));
      token.value.push_back(static_cast<double>(cache_->recorded_value(p, c, lane_)));
    }
    tokens_[p] = token;
  }
  /// The rows that are probes, each as often as it is one.
  std::vector<std::size_t> probes(std::size_t rows, std::size_t stretch) const {
    const auto part = [&](double share) {
      return static_cast<std::size_t>(share * static_cast<double>(rows));
    };
    const std::size_t others = rows - std::max<std::size_t>(1, part(rule_.recent));
    std::vector<std::size_t> out;
    for (std::size_t i = others; i < rows; ++i) out.push_back(i);
    for (std::size_t draw = 0; others > 0 && draw < part(rule_.random); ++draw)
      out.push_back(
          static_cast<std::size_t>(uniform01(combine({combine({0, key_of("zipcache"), 0, stretch}), draw})) *
                                   static_cast<double>(others)));
    return out;
  }
  void code() {
    std::vector<std::pair<double, std::size_t>> fresh;
    for (auto& [position, token] : tokens_)
      if (!token.coded) fresh.emplace_back(token.score, position);
    std::ranges::sort(fresh, std::greater());
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      SlowToken& token = tokens_[fresh[i].second];
      token.coded = true;
      token.salient = i < static_cast<std::size_t>(rule_.share * static_cast<double>(fresh.size()));
    }
    std::vector<double> factors(shape_.dim, 1);
    for (std::size_t c = 0; rule_.separable && c < shape_.dim; ++c) {
      double largest = 0;
      for (const auto& [position, token] : tokens_) largest = std::max(largest, std::abs(token.value[c]));
      factors[c] = as_half(std::sqrt(largest));
    }
    for (const bool salient : {true, false}) {
      const int bits = salient ? rule_.hi : rule_.lo;
      std::vector<SlowToken*> all;
      for (auto& [position, token] : tokens_)
        if (token.salient == salient) all.push_back(&token);
      if (bits == 16 || all.empty()) continue;
      for (std::size_t c = 0; c < shape_.dim; ++c) {
        std::vector<double> channel;
        for (const SlowToken* token : all) channel.push_back(token->key[c]);
        channel = slowly_coded(channel, bits);
        for (std::size_t i = 0; i < all.size(); ++i) all[i]->key[c] = channel[i];
      }
      for (SlowToken* token : all) {
        for (std::size_t c = 0; c < shape_.dim; ++c) token->value[c] /= factors[c];
        token->value = slowly_coded(token->value, bits);
        for (std::size_t c = 0; c < shape_.dim; ++c) token->value[c] *= factors[c];
      }
    }
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  SlowRule rule_;
  std::size_t lane_;
  std::map<std::size_t, SlowToken> tokens_;
};

}  // namespace

TEST_CASE("zipcache equals a slow version of its definition, while tokens come and leave") {
  const std::vector<std::pair<std::string, SlowRule>> rules{
      {"zipcache(every=20)", {.every = 20}},
      {"zipcache(hi=8,lo=3,share=0.3,recent=0.2,random=0.4,every=15)", {8, 3, 0.3, 0.2, 0.4, "probes", 15}},
      {"zipcache(hi=16,recent=0.1,random=0.3,normalise=rows,every=10)",
       {.hi = 16, .recent = 0.1, .random = 0.3, .normalise = "rows", .every = 10}},
      {"zipcache(recent=1,normalise=none,every=7,separable=false)",
       {.recent = 1, .normalise = "none", .every = 7, .separable = false}},
      {"zipcache(share=0,every=1)", {.share = 0, .every = 1}},
      {"zipcache(every=10,ranking=last,recent=0.3)", {.recent = 0.3, .every = 10, .last = true}},
  };
  for (const auto& [text, rule] : rules) {
    const CacheShape shape{
        .representation = text, .prompt = 41, .n_lanes = 2, .dim = 8, .group = 2, .length = 110};
    RepresentedCache cache(shape);
    std::vector<SlowZip> slow;
    for (std::size_t lane = 0; lane < 2; ++lane) slow.emplace_back(cache, shape, rule, lane);
    for (std::size_t p = shape.prompt; p < shape.length; ++p) {
      CAPTURE(text, p);
      for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, slow[lane], lane);
      if (p < 85) CHECK(cache.ledger() == cache.closed_form());
      // From position 85 on, tokens leave: of any slot, two at once now and then.
      std::vector<std::size_t> victims, leaving;
      if (p >= 85) victims.push_back(7 * p % 31);
      if (p % 7 == 0 && p >= 85) victims.push_back(50);
      for (const std::size_t slot : victims)
        leaving.push_back(static_cast<std::size_t>(cache.rows().positions()[slot]));
      cache.append(victims);
      for (SlowZip& lane : slow) lane.append(p, leaving);
    }
  }
}

TEST_CASE("zipcache worked by hand: which tokens are salient") {
  // Every row attends evenly. Ten tokens, half of them salient and exact. Added up over all rows, the
  // earliest have received the most, and so they have per row that sees them, since early rows are spread
  // over fewer tokens. The last row alone pays all the same, and of equals the newest are salient.
  const auto exact = [](const std::string& params) {
    const RepresentedCache cache({.representation = "zipcache(hi=16,share=0.5," + params + ")",
                                  .prompt = 10,
                                  .length = 10,
                                  .scale = 1e-6F});
    std::vector<std::size_t> out;
    for (std::size_t p = 0; p < 10; ++p)
      if (std::ranges::equal(cache.rows().keys(0).row(p),
                             std::vector{cache.recorded_key(p, 0), cache.recorded_key(p, 1),
                                         cache.recorded_key(p, 2), cache.recorded_key(p, 3)}))
        out.push_back(p);
    return out;
  };
  const std::vector<std::size_t> earliest{0, 1, 2, 3, 4}, newest{5, 6, 7, 8, 9};
  CHECK(exact("recent=1,normalise=none") == earliest);
  CHECK(exact("recent=1,normalise=probes") == earliest);
  CHECK(exact("recent=0,random=0,normalise=none") == newest);
  CHECK(exact("recent=0,random=0,normalise=rows") == newest);
}

TEST_CASE("zipcache's sizes") {
  // 840 tokens of 1,024 channels, one sequence, classes not counted: 16 / 3.263 bits. The same with 4,096
  // channels and 157 tokens has more channel parameters per token.
  const Part zipcache = *parse_composition("full+zipcache", builtin()).representation;
  const auto ratio = [&](std::uint64_t tokens, std::size_t channels) {
    const StorageShape shape{1, channels, channels, 16};
    const Ledger ledger = zipcache.ledger(shape, tokens, 0);
    CHECK(ledger.indices == tokens);
    return static_cast<double>(exact_ledger(shape, tokens).bits()) /
           static_cast<double>(ledger.bits() - ledger.indices);
  };
  // Codes 688,128 bytes, keys 2 classes x 2 x 1,024 numbers of 2 bytes, values 1,024 + 2 x 840 of them.
  CHECK(ratio(840, 1024) == Approx(3440640.0 / (688128 + 8192 + 5408)));
  CHECK(ratio(840, 1024) == Approx(4.90).margin(0.005));
  // 94 of 157 tokens are salient: codes of (94 x 4 + 63 x 2) / 8 x 2 x 4,096 bytes.
  CHECK(ratio(157, 4096) == Approx(2572288.0 / (514048 + 32768 + 2 * (4096 + 2 * 157))));
}

TEST_CASE("zipcache in 16 bits stores numbers as they come") {
  for (const char* text : {"zipcache(hi=16,share=1)", "zipcache(hi=16,lo=16,every=7)"}) {
    RepresentedCache cache({.representation = text, .prompt = 30, .length = 60});
    for (int i = 0; i < 25; ++i) cache.append();
    CHECK(cache.exact_keys() == 55);
    CHECK(cache.exact_values() == 55);
    CHECK(cache.ledger() == cache.closed_form());
    CHECK(cache.ledger().exact == exact_ledger({1, 4, 4, 16}, 55).bits());
  }
}

TEST_CASE("coding again leaves each code where it was while the ends of every range stay") {
  // One class. A new key between the least and the largest of the prompt leaves each code where it was; a
  // step is about 0.4, and only the rounding of scales to 16 bits is left.
  RepresentedCache cache({.representation = "zipcache(every=1,separable=false,share=0,lo=4)",
                          .prompt = 300,
                          .dim = 2,
                          .length = 302});
  const auto keys = [&] {
    std::vector<float> out;
    for (std::size_t p = 0; p < 300; ++p) out.push_back(cache.key(p, 0));
    return out;
  };
  const std::vector<float> before = keys();
  const auto [least, largest] = std::ranges::minmax(before);
  cache.append();
  const float fresh = cache.recorded_key(300, 0);
  REQUIRE(fresh > least);
  REQUIRE(fresh < largest);
  const std::vector<float> after = keys();
  for (std::size_t p = 0; p < 300; ++p) CHECK(after[p] == Approx(before[p]).margin(0.01));
}

}  // namespace kvsim::policy::test::test_representation_zipcache
