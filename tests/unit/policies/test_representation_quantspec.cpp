// Tests QuantSpec's two codes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_quantspec {
namespace {

/// What the numbers of a group read back as, from the definition.
std::vector<double> slow_group(std::vector<double> group, bool both) {
  const auto [least, largest] = std::ranges::minmax(group);
  const double step = as_half((largest - least) / 15), offset = as_half(least);
  for (double& x : group) {
    const double upper = step > 0 ? std::nearbyint(std::clamp((x - offset) / step, 0.0, 15.0)) : 0;
    const double read = offset + step * upper;
    const double lower =
        step > 0 && both ? std::nearbyint(std::clamp((x - read) / (step / 16), -8.0, 7.0)) : 0;
    x = read + step / 16 * lower;
  }
  return group;
}

/// The cache of one lane, token by token.
class SlowQuantSpec {
 public:
  struct Token {
    std::vector<double> key, value;
  };

  SlowQuantSpec(const RepresentedCache& cache, std::size_t lane, std::size_t group, std::size_t dim,
                bool both, std::size_t prompt)
      : cache_(cache), lane_(lane), group_(group), dim_(dim), both_(both) {
    for (std::size_t position = 0; position < prompt; ++position) take(position);
    // Of a long prompt, all that is neither in the last `group` nor behind whole groups.
    if (prompt > 2 * group)
      for (std::size_t coded = prompt - group - prompt % group; coded > 0; coded -= group) flush();
  }
  void append(std::size_t position) {
    take(position);
    if (exact_.size() > 2 * group_) flush();
  }
  const std::map<std::size_t, Token>& tokens() const { return tokens_; }
  std::size_t exact() const { return exact_.size(); }

 private:
  void take(std::size_t position) {
    Token token;
    for (std::size_t c = 0; c < dim_; ++c) {
      token.key.push_back(static_cast<double>(cache_.recorded_key(position, c, lane_)));
      token.value.push_back(static_cast<double>(cache_.recorded_value(position, c, lane_)));
    }
    tokens_[position] = token;
    exact_.push_back(position);
  }
  void flush() {
    for (std::size_t c = 0; c < dim_; ++c) {
      std::vector<double> channel;
      for (std::size_t i = 0; i < group_; ++i) channel.push_back(tokens_.at(exact_[i]).key[c]);
      channel = slow_group(channel, both_);
      for (std::size_t i = 0; i < group_; ++i) tokens_.at(exact_[i]).key[c] = channel[i];
    }
    const std::size_t width = std::min(group_, dim_);
    for (std::size_t i = 0; i < group_; ++i) {
      std::vector<double>& value = tokens_.at(exact_.front()).value;
      for (std::size_t first = 0; first < dim_; first += width) {
        const auto begin = value.begin() + static_cast<std::ptrdiff_t>(first);
        const std::vector<double> read =
            slow_group({begin, begin + static_cast<std::ptrdiff_t>(width)}, both_);
        std::ranges::copy(read, begin);
      }
      exact_.pop_front();
    }
  }

  const RepresentedCache& cache_;
  std::size_t lane_, group_, dim_;
  bool both_;
  std::map<std::size_t, Token> tokens_{};
  std::deque<std::size_t> exact_{};
};

}  // namespace

TEST_CASE("quantspec: a worked example", "[quantspec]") {
  // A channel of 16 keys from 0 to 15: the scale is 1, its sixteenth .0625. 3.3 is 3 and 4.8 sixteenths, so
  // 5; 7.5 is even 8 and -8; 9.49 is 9 and 7.84 sixteenths, which are clipped to 7 before they are rounded.
  // The values of a token are its channels.
  std::vector<float> keys(40), values(40);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = values[i] = static_cast<float>(i % 16);
  keys[3] = 3.3F, keys[7] = 7.5F, keys[9] = 9.49F;
  for (const bool both : {false, true}) {
    CacheShape shape{.representation = both ? "quantspec(group=16)" : "quantspec(group=16,read=upper)",
                     .prompt = 32,
                     .dim = 1,
                     .length = 40};
    shape.keys = keys;
    shape.values = values;
    RepresentedCache cache(shape);
    CHECK(cache.exact_keys() == 32);
    CHECK(cache.key(3, 0) == 3.3F);
    cache.append();
    CHECK(cache.exact_values() == 33);  // of one channel: the least number is the number
    CHECK(cache.key(0, 0) == 0);
    CHECK(cache.key(15, 0) == 15);
    CHECK(cache.key(3, 0) == (both ? 3.3125F : 3.0F));
    CHECK(cache.key(7, 0) == (both ? 7.5F : 8.0F));
    CHECK(cache.key(9, 0) == (both ? 9.4375F : 9.0F));
    CHECK(cache.key(16, 0) == 0);
    // 16 keys of 8 or 4 bits and 32 for their group, 16 values and a group of each; 17 tokens are exact.
    CHECK(cache.ledger().bits() == 2 * 17 * 16 + (both ? 2U : 1U) * 2 * 16 * 4 + 32 + 16 * 32);
  }
}

TEST_CASE("quantspec: reads what its definition says, and knows what it takes", "[quantspec]") {
  for (const std::size_t dim : {4U, 16U})
    for (const bool both : {false, true})
      for (const std::size_t prompt : {0U, 1U, 16U, 17U, 20U, 24U, 31U}) {
        CAPTURE(dim, both, prompt);
        RepresentedCache cache(
            {.representation = std::string("quantspec(group=8") + (both ? ")" : ",read=upper)"),
             .prompt = prompt,
             .n_lanes = 2,
             .dim = dim});
        std::vector<SlowQuantSpec> lanes;
        for (std::size_t lane = 0; lane < 2; ++lane) lanes.emplace_back(cache, lane, 8, dim, both, prompt);
        for (std::size_t position = prompt; position < prompt + 40; ++position) {
          for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, lanes[lane], lane);
          CHECK(cache.exact_keys() >= lanes.front().exact());
          CHECK(cache.ledger() == cache.closed_form());
          cache.append();
          for (SlowQuantSpec& lane : lanes) lane.append(position);
        }
      }
}

TEST_CASE("quantspec: 4.25 bits draft, 8.25 verify, and the codes of one are the other's upper halves",
          "[quantspec]") {
  const auto bits = [](const char* text) {
    const Part part = *parse_composition(text, builtin()).representation;
    const std::uint64_t tokens = 1 << 20;
    const StorageShape shape{8, 128, 128, 16};
    const double exact = 128;  // of a whole number of groups the last one
    return (static_cast<double>(part.ledger(shape, tokens, 0).bits()) / (8 * 256) - 16 * exact) /
           (static_cast<double>(tokens) - exact);
  };
  CHECK(bits("full+quantspec(read=upper)") == 4.25);
  CHECK(bits("full+quantspec") == 8.25);

  RepresentedCache upper({.representation = "quantspec(group=16,read=upper)", .prompt = 64, .dim = 8}),
      both({.representation = "quantspec(group=16)", .prompt = 64, .dim = 8});
  double of_upper = 0, of_both = 0;
  for (std::size_t position = 0; position < 48; ++position)
    for (std::size_t c = 0; c < 8; ++c) {
      of_upper += std::abs(upper.key(position, c) - upper.recorded_key(position, c));
      of_both += std::abs(both.key(position, c) - both.recorded_key(position, c));
    }
  CHECK(of_both < of_upper / 12);
}

}  // namespace kvsim::policy::test::test_representation_quantspec
