// Tests codes in groups with exact windows: kivi and scalar.
#include <catch2/catch.hpp>
#include <random>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"

using namespace kvsim;
using namespace kvsim::policy;

namespace {

constexpr std::size_t kDim = 4;

class NoPrompt final : public Prompt {
 public:
  std::size_t length() const override { return 0; }
  MatrixView keys(int) const override { return {}; }
  MatrixView values(int) const override { return {}; }
};

/// One lane whose tokens are drawn at random, with everything that a codec may be told.
class Lane {
 public:
  explicit Lane(const std::string& representation, std::size_t prompt, std::size_t length = 600)
      : part_(*parse_composition("full+" + representation, builtin()).representation),
        rows_({1, kDim, kDim, 16}, length, length) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < length * kDim; ++i) {
      keys_.push_back(normal(random));
      values_.push_back(normal(random));
    }
    CacheUnit unit;
    unit.head_dim = unit.value_dim = kDim;
    codec_ = part_.make_representation(unit)->codec();
    for (; next_ < prompt; ++next_) join({});
    codec_->begin(NoPrompt(), rows_);
    kept_ = prompt;
  }

  void append(std::vector<std::size_t> victims = {}) {
    if (!victims.empty()) codec_->leave(victims, rows_);
    const std::size_t slot = join(victims);
    codec_->join(slot, rows_);
    codec_->settle(slot, rows_);
    ++next_;
  }

  bool key_is_exact(std::size_t position) const { return same(rows_.keys(0), keys_, position); }
  bool value_is_exact(std::size_t position) const { return same(rows_.values(0), values_, position); }
  std::size_t exact_keys() const { return count(&Lane::key_is_exact); }
  std::size_t exact_values() const { return count(&Lane::value_is_exact); }
  Ledger ledger() const { return codec_->ledger(rows_); }
  Ledger closed_form() const { return part_.ledger(rows_.shape(), kept_, next_ - kept_); }
  float key(std::size_t position, std::size_t channel) const {
    return rows_.keys(0).row(rows_.slot_of(static_cast<Position>(position)))[channel];
  }
  float recorded_key(std::size_t position, std::size_t channel) const {
    return keys_[position * kDim + channel];
  }

 private:
  std::size_t join(const std::vector<std::size_t>& victims) {
    return rows_.join(victims, static_cast<Position>(next_), {keys_.data() + next_ * kDim, 1, kDim, kDim},
                      {values_.data() + next_ * kDim, 1, kDim, kDim});
  }
  bool same(MatrixView rows, const std::vector<float>& recorded, std::size_t position) const {
    const std::span<const float> row = rows.row(rows_.slot_of(static_cast<Position>(position)));
    return std::equal(row.begin(), row.end(),
                      recorded.begin() + static_cast<std::ptrdiff_t>(position * kDim));
  }
  std::size_t count(bool (Lane::*is_exact)(std::size_t) const) const {
    std::size_t n = 0;
    for (const Position position : rows_.positions())
      n += (this->*is_exact)(static_cast<std::size_t>(position)) ? 1 : 0;
    return n;
  }

  Part part_;
  StoredRows rows_;
  std::vector<float> keys_, values_;
  std::unique_ptr<Codec> codec_;
  std::size_t next_ = 0, kept_ = 0;
};

}  // namespace

TEST_CASE("kivi's windows: keys wait for each other, values slide") {
  // R = 8. After n tokens n mod 8 keys are exact, and the latest min(n, 8) values.
  for (const std::size_t prompt : {0U, 1U, 7U, 8U, 9U, 16U}) {
    Lane lane("kivi(bits=2,group=4,residual=8)", prompt);
    for (std::size_t n = prompt; n <= 40; ++n) {
      CAPTURE(prompt, n);
      CHECK(lane.exact_keys() == n % 8);
      CHECK(lane.exact_values() == std::min<std::size_t>(n, 8));
      CHECK(lane.ledger() == lane.closed_form());
      lane.append();
    }
  }
}

TEST_CASE("kivi's bits per number, windows included") {
  // Groups of 32, residual 128, 2 bits: 3 bits in a group, and 16 for 128 values.
  const Part kivi = *parse_composition("full+kivi", builtin()).representation;
  const StorageShape shape{32, 128, 128, 16};
  const auto bits = [&](std::uint64_t tokens) {
    return static_cast<double>(kivi.ledger(shape, tokens, 0).bits()) / static_cast<double>(tokens * 32 * 256);
  };
  CHECK(bits(2048) == Approx(3.40625));
  CHECK(bits(8192) == Approx(3.1015625));
  CHECK(bits(16384) == Approx(3.05078125));
  CHECK(bits(32768) == Approx(3.025390625));
  CHECK(bits(127) == 16);
}

TEST_CASE("a key's channel is coded over the tokens of its group") {
  // One group of two tokens per channel and one bit: the least and the largest of the two come back.
  Lane lane("kivi(bits=1,group=2,residual=2)", 2);
  for (std::size_t channel = 0; channel < kDim; ++channel) {
    const float a = lane.recorded_key(0, channel), b = lane.recorded_key(1, channel);
    CHECK(lane.key(0, channel) == Approx(a).margin(2e-3));
    CHECK(lane.key(1, channel) == Approx(b).margin(4e-3));
  }
}

TEST_CASE("a coded token that leaves keeps its group's scale alive until the last is gone") {
  Lane lane("scalar(bits=4,group=4,axis=channel)", 8);
  const std::uint64_t group = kDim * 32 * 2, token = kDim * 4 * 2, exact = kDim * 16 * 2;
  CHECK(lane.ledger().bits() == 8 * token + 2 * group);
  // Position 0 leaves from slot 0, and so do 1, 2 and 3, each for a new exact token; the first group is gone
  // then.
  lane.append({0});
  CHECK(lane.ledger().bits() == 7 * token + 2 * group + exact);
  lane.append({1});
  lane.append({2});
  CHECK(lane.ledger().bits() == 5 * token + 2 * group + 3 * exact);
  // With the fourth, the new tokens are a group.
  lane.append({3});
  CHECK(lane.ledger().bits() == 8 * token + 2 * group);
}

TEST_CASE("an exact token that leaves waits no longer") {
  Lane lane("scalar(bits=4,group=4,axis=channel)", 2);
  lane.append({0});  // positions 1, 2 wait
  CHECK(lane.exact_keys() == 2);
  lane.append();
  CHECK(lane.exact_keys() == 3);
  lane.append();
  CHECK(lane.exact_keys() == 0);
}

TEST_CASE("16 bits store every number as it comes") {
  for (const char* text : {"scalar(bits=16)", "kivi(bits=16)", "scalar(bits=16,axis=channel)"}) {
    Lane lane(text, 200);
    for (int i = 0; i < 100; ++i) lane.append();
    CHECK(lane.exact_keys() == 300);
    CHECK(lane.exact_values() == 300);
    CHECK(lane.ledger() == exact_ledger({1, kDim, kDim, 16}, 300));
  }
}

TEST_CASE("groups that do not divide are refused, with what to do") {
  const auto refuse = [](const std::string& text, const std::string& words) {
    try {
      Lane lane(text, 1);
      FAIL(text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CAPTURE(std::string(error.what()));
      CHECK(std::string(error.what()).find(words) != std::string::npos);
    }
  };
  refuse("kivi(group=32,residual=100)", "multiple of the group");
  refuse("scalar(group=3)", "do not divide a vector of 4");
  refuse("scalar(bits=12)", "1 to 8 bits");
  refuse("scalar(bits=1,zero=absmax)", "2 bits or more");
  refuse("scalar(axis=channel,group=0)", "say group=");
}
