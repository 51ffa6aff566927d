// Tests codes of fewer and fewer bits as tokens age: saq.
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_saq {

namespace {

struct SlowToken {
  std::vector<double> key, value;
  std::size_t group = 0, step = 0;  ///< groups are numbered through all segments
};

/// One lane, token by token, in double and without slots.
class SlowSaq {
 public:
  SlowSaq(const RepresentedCache& cache, const CacheShape& shape, std::vector<int> ladder,
          std::size_t segment, std::size_t group, std::size_t lane)
      : cache_(&cache),
        shape_(shape),
        ladder_(std::move(ladder)),
        segment_(segment),
        group_(group),
        lane_(lane) {
    for (std::size_t p = 0; p < shape.prompt; p += shape.every) append(p, {});
  }
  void append(std::size_t p, const std::vector<std::size_t>& leaving) {
    for (const std::size_t gone : leaving) {
      tokens_.erase(gone);
      std::erase(waiting_, gone);
    }
    SlowToken& token = tokens_[p];
    for (std::size_t c = 0; c < shape_.dim; ++c) {
      token.key.push_back(static_cast<double>(cache_->recorded_key(p, c, lane_)));
      token.value.push_back(static_cast<double>(cache_->recorded_value(p, c, lane_)));
    }
    waiting_.push_back(p);
    if (waiting_.size() < segment_) return;
    for (std::size_t i = 0; i < segment_; ++i) {
      tokens_[waiting_[i]].group = 1 + groups_ + i / group_;
    }
    groups_ += segment_ / group_;
    waiting_.clear();
    for (std::size_t number = 1; number <= groups_; ++number) {
      std::vector<SlowToken*> members;
      for (auto& [position, member] : tokens_)
        if (member.group == number && member.step + 1 < ladder_.size()) members.push_back(&member);
      if (members.empty()) continue;
      for (SlowToken* member : members) ++member->step;
      const int bits = ladder_[members[0]->step];
      for (std::size_t c = 0; c < shape_.dim; ++c) {
        std::vector<double> channel;
        for (const SlowToken* member : members) channel.push_back(member->key[c]);
        channel = slowly_coded(channel, bits);
        for (std::size_t i = 0; i < members.size(); ++i) members[i]->key[c] = channel[i];
      }
      for (SlowToken* member : members)
        for (std::size_t first = 0; first < shape_.dim; first += group_) {
          const auto begin = member->value.begin() + static_cast<std::ptrdiff_t>(first);
          std::ranges::copy(slowly_coded({begin, begin + static_cast<std::ptrdiff_t>(group_)}, bits), begin);
        }
    }
  }
  const std::map<std::size_t, SlowToken>& tokens() const { return tokens_; }

 private:
  const RepresentedCache* cache_;
  CacheShape shape_;
  std::vector<int> ladder_;
  std::size_t segment_, group_, lane_, groups_ = 0;
  std::vector<std::size_t> waiting_;
  std::map<std::size_t, SlowToken> tokens_;
};

std::vector<float> row(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Every row of two caches that hold the same tokens.
void check_equal(const RepresentedCache& a, const RepresentedCache& b) {
  REQUIRE(a.rows().slots() == b.rows().slots());
  for (const Position position : a.rows().positions()) {
    CAPTURE(position);
    CHECK(row(a.rows().keys(0).row(a.rows().slot_of(position))) ==
          row(b.rows().keys(0).row(b.rows().slot_of(position))));
    CHECK(row(a.rows().values(0).row(a.rows().slot_of(position))) ==
          row(b.rows().values(0).row(b.rows().slot_of(position))));
  }
}

}  // namespace

TEST_CASE("saq worked by hand") {
  // Every channel of the first four keys is 0, 0.75, 2, 3, and every value 0, 0.75, 2, 3, too. In two bits
  // the step is 1; in one bit, a segment later, it is 3 and what had become 1 becomes 0, what is 2 becomes 3.
  std::vector<float> keys, values;
  const std::vector<float> numbers{0, 0.75F, 2, 3};
  for (std::size_t p = 0; p < 12; ++p)
    for (std::size_t c = 0; c < 4; ++c) {
      keys.push_back(numbers[p % 4]);
      values.push_back(numbers[c]);
    }
  RepresentedCache cache({.representation = "saq(ladder=16/2/1,segment=4,group=4)",
                          .prompt = 3,
                          .length = 12,
                          .keys = keys,
                          .values = values});
  const auto key_of = [&](std::size_t position) { return cache.key(position, 1); };
  CHECK(cache.exact_keys() == 3);
  cache.append();
  for (std::size_t p = 0; p < 4; ++p) {
    CHECK(key_of(p) == std::vector<float>{0, 1, 2, 3}[p]);
    for (std::size_t c = 0; c < 4; ++c) CHECK(cache.value(p, c) == std::vector<float>{0, 1, 2, 3}[c]);
  }
  for (int i = 0; i < 3; ++i) cache.append();
  CHECK(key_of(1) == 1);
  CHECK(key_of(5) == 0.75F);
  CHECK(cache.ledger() ==
        Ledger{.exact = 3 * 2 * 4 * 16, .codes = 4 * 2 * 4 * 2, .parameters = 4 * 32 + 4 * 32});
  cache.append();
  for (std::size_t p = 0; p < 4; ++p) {
    CHECK(key_of(p) == std::vector<float>{0, 0, 3, 3}[p]);
    CHECK(key_of(4 + p) == std::vector<float>{0, 1, 2, 3}[p]);
    for (std::size_t c = 0; c < 4; ++c) CHECK(cache.value(p, c) == std::vector<float>{0, 0, 3, 3}[c]);
  }
  // A token that leaves takes its codes with it; its group's scales stay for the others.
  cache.append({1});
  CHECK(cache.ledger() == Ledger{.exact = 2 * 4 * 16,
                                 .codes = 3 * 2 * 4 * 1 + 4 * 2 * 4 * 2,
                                 .parameters = 2 * 4 * 32 + 7 * 32});
}

TEST_CASE("saq equals a slow version of its definition, while tokens come and leave") {
  const struct {
    const char* text;
    std::vector<int> ladder;
    std::size_t segment, group;
  } rules[] = {{"saq(segment=16,group=8)", {16, 8, 4, 2}, 16, 8},
               {"saq(ladder=16/7/3,segment=8,group=4)", {16, 7, 3}, 8, 4},
               {"saq(ladder=16/5/4/3/2/1,segment=6,group=2)", {16, 5, 4, 3, 2, 1}, 6, 2}};
  for (const auto& [text, ladder, segment, group] : rules)
    for (const std::size_t every : {1U, 3U}) {
      const CacheShape shape{
          .representation = text, .prompt = 70, .n_lanes = 2, .dim = 8, .length = 160, .every = every};
      RepresentedCache cache(shape);
      std::vector<SlowSaq> slow;
      for (std::size_t lane = 0; lane < 2; ++lane)
        slow.emplace_back(cache, shape, ladder, segment, group, lane);
      for (std::size_t p = shape.prompt; p < shape.length; ++p) {
        CAPTURE(text, every, p);
        for (std::size_t lane = 0; lane < 2; ++lane) compare_with(cache, slow[lane], lane);
        if (p < 110) CHECK(cache.ledger() == cache.closed_form());
        std::vector<std::size_t> victims, leaving;
        if (p >= 110) victims.push_back(7 * p % 23);
        if (p >= 110 && p % 7 == 0) victims.push_back(24);
        for (const std::size_t slot : victims)
          leaving.push_back(static_cast<std::size_t>(cache.rows().positions()[slot]));
        cache.append(victims);
        for (SlowSaq& lane : slow) lane.append(p, leaving);
      }
    }
}

TEST_CASE("saq's size by segment, as a formula of the number of tokens") {
  // Of keys, and the same of values, per layer of D numbers: D [16 r + S sum of (B_i + 32/G) over the steps
  // between + (n - r - (q - 2) S) (B_q + 32/G)], with r = n mod S.
  const Part saq = *parse_composition("full+saq", builtin()).representation;
  const StorageShape shape{8, 128, 128, 16};
  for (const std::uint64_t n : {256U, 257U, 1000U, 1024U, 5000U}) {
    const double r = static_cast<double>(n % 128), lowest = static_cast<double>(n) - r - 2 * 128;
    const double keys = 8 * 128 * (16 * r + 128 * ((8 + 1) + (4 + 1)) + lowest * (2 + 1));
    CHECK(static_cast<double>(saq.ledger(shape, n, 0).bits()) == 2 * keys);
    CHECK(saq.ledger(shape, n - 200, 200) == saq.ledger(shape, n, 0));
  }
  CHECK(saq.ledger(shape, 127, 0) == exact_ledger(shape, 127));
}

TEST_CASE("saq is the same whether tokens are of the prompt or generated") {
  CacheShape shape{.representation = "saq(segment=16,group=8)", .prompt = 90, .dim = 8, .length = 90};
  const RepresentedCache whole(shape);
  shape.prompt = 21;
  RepresentedCache parts(shape);
  for (std::size_t p = 21; p < 90; ++p) parts.append();
  check_equal(whole, parts);
}

TEST_CASE("saq's limits: one step stores numbers as they come, two are KIVI's keys") {
  RepresentedCache exact({.representation = "saq(ladder=16)", .prompt = 300, .length = 400});
  for (int i = 0; i < 90; ++i) exact.append();
  CHECK(exact.exact_keys() == 390);
  CHECK(exact.exact_values() == 390);
  CHECK(exact.ledger() == exact_ledger({1, 4, 4, 16}, 390));
  CHECK(exact.ledger() == exact.closed_form());
  CacheShape shape{.representation = "saq(ladder=16/2,segment=16,group=8)", .prompt = 100, .dim = 8};
  RepresentedCache saq(shape);
  shape.representation = "kivi(bits=2,residual=16,group=8)";
  RepresentedCache kivi(shape);
  for (int i = 0; i < 50; ++i) {
    saq.append();
    kivi.append();
  }
  for (std::size_t p = 0; p < 150; ++p)
    for (std::size_t c = 0; c < 8; ++c) CHECK(saq.key(p, c) == kivi.key(p, c));
}

TEST_CASE(
    "codes of 8, 4 and 2 bits nest: going down the ladder loses no more than going to its end at once") {
  // Where ranges are such that no scale has to be rounded, the two are the same bit for bit.
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0, 255.0F / 16);
  std::vector<float> keys(96 * 8), values(96 * 8);
  for (float& x : keys) x = uniform(random);
  for (float& x : values) x = uniform(random);
  for (std::size_t p = 0; p < 96; ++p)
    for (std::size_t c = 0; c < 8; ++c) {
      if (p % 8 < 2) keys[p * 8 + c] = p % 8 == 0 ? 0 : 255.0F / 16;
      if (c < 2) values[p * 8 + c] = c == 0 ? 0 : 255.0F / 16;
    }
  CacheShape shape{.representation = "saq(segment=16,group=8)",
                   .prompt = 96,
                   .dim = 8,
                   .length = 96,
                   .keys = keys,
                   .values = values};
  const RepresentedCache ladder(shape);
  shape.representation = "saq(ladder=16/2,segment=16,group=8)";
  const RepresentedCache at_once(shape);
  for (std::size_t p = 0; p < 64; ++p)
    for (std::size_t c = 0; c < 8; ++c) {
      CHECK(ladder.key(p, c) == at_once.key(p, c));
      CHECK(ladder.value(p, c) == at_once.value(p, c));
    }
  // The newest segment is in 8 bits, not in 2.
  std::size_t differ = 0;
  for (std::size_t c = 0; c < 8; ++c) differ += ladder.key(90, c) != at_once.key(90, c) ? 1 : 0;
  CHECK(differ > 0);
}

TEST_CASE("a ladder that does not fall is refused, and so is a group that does not divide") {
  const auto refuses = [](const std::string& text, const std::string& words) {
    CAPTURE(text);
    CHECK_THROWS_WITH(RepresentedCache({.representation = text, .prompt = 1}), Catch::Contains(words));
  };
  for (const char* ladder : {"8/4", "16/4/8", "16/4/4", "16/12", "16/0", "16/x", "16/"})
    refuses("saq(group=4,ladder=" + std::string(ladder) + ")", "is no step of a ladder");
  refuses("saq(segment=100)", "multiple of the group");
  refuses("saq(group=3,segment=9)", "do not divide a vector of 4");
}

}  // namespace kvsim::policy::test::test_representation_saq
