// Tests codes in two precisions by importance: mikv.
#include <catch2/catch.hpp>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_mikv {

namespace {

struct SlowToken {
  std::vector<double> key, value;
  double score = 0;
  bool important = true;
};

/// One lane, token by token, in double and without slots.
class SlowMikv {
 public:
  struct Rule {
    int hi = 16, lo = 2;
    double share = 0.2, recent = 0.5;
    std::size_t groups = 2;
    bool balancer = true;
  };

  SlowMikv(const RepresentedCache& cache, const CacheShape& shape, const Rule& rule, std::size_t lane)
      : cache_(&cache), shape_(shape), rule_(rule), lane_(lane), factors_(shape.dim, 1.0) {
    for (std::size_t c = 0; rule.balancer && c < shape.dim; ++c) {
      double key = 0, query = 0;
      for (std::size_t p = 0; p < shape.prompt; ++p) {
        key = std::max(key, std::abs(static_cast<double>(cache.recorded_key(p, c, lane))));
        for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head)
          query = std::max(query, std::abs(static_cast<double>(cache.query(p, c, head))));
      }
      factors_[c] = as_half(std::sqrt(query / key));
    }
    for (std::size_t p = 0; p < shape.prompt; ++p) {
      join(p);
      for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head)
        for (std::size_t i = p; i < shape.prompt; ++i)
          tokens_[p].score += static_cast<double>(cache.attention(i, head)[p]);
    }
    settle();
    for (auto& [position, token] : tokens_) code(token);
  }
  void append(std::size_t position, const std::vector<std::size_t>& leaving) {
    for (const std::size_t p : leaving) tokens_.erase(p);
    join(position);
    for (auto& [p, token] : tokens_)
      for (std::size_t head = lane_ * shape_.group; head < (lane_ + 1) * shape_.group; ++head)
        if (rule_.share > 0 && rule_.recent < 1) token.score += static_cast<double>(cache_->weight(p, head));
    for (const std::size_t p : settle())
      if (p != position) code(tokens_[p]);
    code(tokens_[position]);
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
  std::vector<std::size_t> settle() {
    const auto most = static_cast<std::size_t>(rule_.share * static_cast<double>(tokens_.size()));
    const auto window = static_cast<std::size_t>(rule_.recent * static_cast<double>(most));
    std::vector<std::size_t> demoted;
    for (;;) {
      std::size_t important = 0, place = 0;
      const std::pair<const std::size_t, SlowToken>* lowest = nullptr;
      for (const auto& entry : tokens_) {
        const bool in_window = tokens_.size() - place++ <= window;
        if (!entry.second.important) continue;
        ++important;
        if (!in_window && (lowest == nullptr || entry.second.score < lowest->second.score)) lowest = &entry;
      }
      if (important <= most) return demoted;
      demoted.push_back(lowest->first);
      tokens_[lowest->first].important = false;
    }
  }
  void code(SlowToken& token) const {
    const int bits = token.important ? rule_.hi : rule_.lo;
    if (bits == 16) return;
    for (std::size_t c = 0; c < shape_.dim; ++c) token.key[c] *= factors_[c];
    for (std::vector<double>* vector : {&token.key, &token.value})
      for (std::size_t first = 0, n = shape_.dim / rule_.groups; first < shape_.dim; first += n) {
        const auto begin = vector->begin() + static_cast<std::ptrdiff_t>(first);
        std::ranges::copy(slowly_coded({begin, begin + static_cast<std::ptrdiff_t>(n)}, bits), begin);
      }
    for (std::size_t c = 0; c < shape_.dim; ++c) token.key[c] /= factors_[c];
  }

  const RepresentedCache* cache_;
  CacheShape shape_;
  Rule rule_;
  std::size_t lane_;
  std::vector<double> factors_;
  std::map<std::size_t, SlowToken> tokens_;
};

}  // namespace

TEST_CASE("mikv equals a slow version of its definition, while tokens come and leave") {
  const std::vector<std::pair<std::string, SlowMikv::Rule>> rules{
      {"mikv", {}},
      {"mikv(hi=4,lo=3,share=0.5,recent=0.25)", {4, 3, 0.5, 0.25, 2, true}},
      {"mikv(hi=8,share=0.3,recent=1,groups=1,balancer=false)", {8, 2, 0.3, 1, 1, false}},
      {"mikv(hi=8,lo=4,recent=0,groups=4)", {8, 4, 0.2, 0, 4, true}},
      {"mikv(share=0)", {16, 2, 0, 0.5, 2, true}},
  };
  for (const auto& [text, rule] : rules)
    for (const bool columns : {false, true}) {
      const CacheShape shape{.representation = text,
                             .prompt = 30,
                             .n_lanes = 2,
                             .dim = 8,
                             .group = 2,
                             .columns = columns,
                             .length = 70};
      RepresentedCache cache(shape);
      std::vector<SlowMikv> slow;
      for (std::size_t lane = 0; lane < 2; ++lane) slow.emplace_back(cache, shape, rule, lane);
      for (std::size_t p = shape.prompt; p < shape.length; ++p) {
        CAPTURE(text, columns, p);
        for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, slow[lane], lane);
        if (p < 50) CHECK(cache.ledger() == cache.closed_form());
        // From position 50 on, tokens leave: of any slot, two at once now and then.
        std::vector<std::size_t> victims, leaving;
        if (p >= 50) victims.push_back(7 * p % 23);
        if (p % 7 == 0 && p >= 50) victims.push_back(24);
        for (const std::size_t slot : victims)
          leaving.push_back(static_cast<std::size_t>(cache.rows().positions()[slot]));
        cache.append(victims);
        for (SlowMikv& lane : slow) lane.append(p, leaving);
      }
    }
}

TEST_CASE("mikv worked by hand: which tokens stay important") {
  // 10 tokens and half of them important: two for being new, three for their attention. A query of zeros
  // attends evenly, so the earliest positions have received the most: 0, 1 and 2, with 8 and 9.
  RepresentedCache cache({.representation = "mikv(share=0.5)", .prompt = 10, .length = 40, .scale = 1e-6F});
  const auto exact = [&] {
    std::vector<std::size_t> out;
    for (std::size_t p = 0; p < cache.rows().slots(); ++p)
      if (cache.key(p, 0) == cache.recorded_key(p, 0) && cache.key(p, 1) == cache.recorded_key(p, 1))
        out.push_back(p);
    return out;
  };
  CHECK(exact() == std::vector<std::size_t>{0, 1, 2, 8, 9});
  // 11 tokens, 5 important, 2 of them new: 8 has received the least of the others.
  cache.append();
  CHECK(exact() == std::vector<std::size_t>{0, 1, 2, 9, 10});
  // 12 tokens, 6 important, 3 of them new: none has to go.
  cache.append();
  CHECK(exact() == std::vector<std::size_t>{0, 1, 2, 9, 10, 11});
  // 13 tokens, 6 important, 3 of them new.
  cache.append();
  CHECK(exact() == std::vector<std::size_t>{0, 1, 2, 10, 11, 12});
}

TEST_CASE("mikv worked by hand: a generated token that is attended stays important") {
  // As above, but the query of token 11 pays most of its attention to token 10.
  CacheShape shape{.representation = "mikv(share=0.5,balancer=false)", .prompt = 10, .length = 40};
  shape.scale = 1e-6F;
  const RepresentedCache plain(shape);
  for (std::size_t p = 0; p < 11; ++p)
    for (std::size_t c = 0; c < 4; ++c) {
      shape.keys.push_back(plain.recorded_key(p, c));
      shape.values.push_back(plain.recorded_value(p, c));
    }
  // Keys that are given move the noise of the queries: once more, with the keys in place.
  const RepresentedCache given(shape);
  double squares = 0;
  for (std::size_t c = 0; c < 4; ++c)
    squares += static_cast<double>(given.query(11, c)) * static_cast<double>(given.query(11, c));
  // A logit of 3, where a product is divided by 2.
  for (std::size_t c = 0; c < 4; ++c)
    shape.keys[40 + c] = static_cast<float>(6 * static_cast<double>(given.query(11, c)) / squares);
  RepresentedCache cache(shape);
  for (int i = 0; i < 5; ++i) cache.append();
  std::vector<std::size_t> exact;
  for (std::size_t p = 0; p < 15; ++p)
    if (cache.key(p, 0) == cache.recorded_key(p, 0) && cache.key(p, 1) == cache.recorded_key(p, 1))
      exact.push_back(p);
  // 15 tokens, 7 important, 3 of them new. Of 0, 1, 2, 10 and 11 the last has received the least.
  CHECK(exact == std::vector<std::size_t>{0, 1, 2, 10, 12, 13, 14});
}

TEST_CASE("mikv's sizes, as the paper counts them") {
  // 20 % important, the rest in 2 bits, two groups of 64 per vector. The paper says 33, 23, 18, 16 %.
  const StorageShape shape{8, 128, 128, 16};
  for (const auto& [hi, percent] :
       std::map<std::string, double>{{"16", 32.5}, {"8", 23.125}, {"4", 18.125}}) {
    const Part mikv = *parse_composition("full+mikv(hi=" + hi + ")", builtin()).representation;
    const Ledger ledger = mikv.ledger(shape, 1000, 0);
    CHECK(100 * static_cast<double>(ledger.exact + ledger.codes + ledger.parameters) /
              static_cast<double>(exact_ledger(shape, 1000).bits()) ==
          Approx(percent));
    CHECK(ledger.indices == 8 * 1000);
    CHECK(ledger.tables == 8 * 128 * 16);
  }
  const Part all_low = *parse_composition("full+mikv(share=0)", builtin()).representation;
  CHECK(
      static_cast<double>(all_low.ledger(shape, 1000, 0).codes + all_low.ledger(shape, 1000, 0).parameters) /
          static_cast<double>(exact_ledger(shape, 1000).bits()) ==
      Approx(0.15625));
}

TEST_CASE("mikv with every token important and 16 bits stores numbers as they come") {
  RepresentedCache cache({.representation = "mikv(share=1)", .prompt = 20, .length = 60});
  for (int i = 0; i < 30; ++i) cache.append();
  CHECK(cache.exact_keys() == 50);
  CHECK(cache.exact_values() == 50);
}

TEST_CASE("mikv's groups divide a vector") {
  try {
    RepresentedCache cache({.representation = "mikv(groups=3)", .prompt = 1});
    FAIL();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find("do not divide a vector of 4") != std::string::npos);
  }
}

}  // namespace kvsim::policy::test::test_representation_mikv
