// InfLLM: blocks whose representative tokens a query asks for.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_infllm {

namespace {

const std::vector<float> kInvFreq{0.5F, 0.03F};
constexpr std::size_t kDim = 6, kLanes = 2, kGroup = 3, kBlock = 4, kSinks = 3, kLocal = 9, kStand = 2;

/// Turns the pairs (i, i + 2) by so many positions.
std::vector<double> turned(std::vector<double> row, double positions) {
  for (std::size_t i = 0; i < kInvFreq.size(); ++i) {
    const double angle =
        std::copysign(static_cast<double>(static_cast<float>(std::abs(positions)) * kInvFreq[i]), positions);
    const double x = row[i], y = row[i + 2];
    row[i] = x * std::cos(angle) - y * std::sin(angle);
    row[i + 2] = y * std::cos(angle) + x * std::sin(angle);
  }
  return row;
}

/// From the definition: nothing is kept from step to step but which tokens are sinks or in which block.
class Slow {
 public:
  explicit Slow(const SelectedCache& cache) : cache_(&cache) {}

  /// What all heads read at `now`, `chosen` blocks among it.
  std::set<Position> read(std::size_t now, std::size_t chosen) {
    std::vector<Position> open;
    for (const Position position : cache_->slots())
      if (position < static_cast<Position>(now) && !block_.contains(position)) open.push_back(position);
    std::ranges::sort(open);
    const std::size_t missing = blocks_.empty() ? kSinks : 0;
    if (open.size() >= missing + kBlock + kLocal) {
      for (std::size_t i = 0; i < missing; ++i) block_[open[i]] = -1;
      open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(missing));
      while (open.size() >= kBlock + kLocal) {
        for (std::size_t i = 0; i < kBlock; ++i) block_[open[i]] = static_cast<int>(blocks_.size());
        blocks_.push_back(mean_keys({open.begin(), open.begin() + kBlock}));
        open.erase(open.begin(), open.begin() + kBlock);
      }
    }
    std::vector<std::pair<double, int>> ranking;
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      double score = 0;
      for (std::size_t head = 0; head < kLanes * kGroup; ++head) {
        const std::vector<double> asked =
            turned(turned(query(now, head), -static_cast<double>(now)), kLocal - 1.0);
        for (std::size_t c = 0; c < kDim; ++c) score += asked[c] * blocks_[block][head][c];
      }
      ranking.emplace_back(score, static_cast<int>(block));
    }
    std::sort(ranking.rbegin(), ranking.rend());
    std::set<Position> out;
    for (const Position position : cache_->slots()) {
      const auto found = block_.find(position);
      if (found == block_.end() || found->second < 0 ||
          std::any_of(ranking.begin(),
                      ranking.begin() + static_cast<std::ptrdiff_t>(std::min(chosen, ranking.size())),
                      [&](const auto& each) { return each.second == found->second; }))
        out.insert(position);
    }
    return out;
  }
  std::size_t blocks() const { return blocks_.size(); }

 private:
  std::vector<double> query(std::size_t position, std::size_t head) const {
    std::vector<double> out;
    for (std::size_t c = 0; c < kDim; ++c)
      out.push_back(static_cast<double>(cache_->query(position, c, head)));
    return out;
  }
  /// Per query head, of the tokens with the largest mean logit from the next kLocal queries.
  std::vector<std::vector<double>> mean_keys(const std::vector<Position>& block) const {
    std::vector<std::vector<double>> out;
    for (std::size_t head = 0; head < kLanes * kGroup; ++head) {
      std::vector<std::pair<double, Position>> ranking;
      for (const Position position : block) {
        double sum = 0;
        for (std::size_t j = 1; j <= kLocal; ++j)
          sum +=
              cache_->logit(static_cast<std::size_t>(position) + j, static_cast<std::size_t>(position), head);
        ranking.emplace_back(sum / kLocal, position);
      }
      std::sort(ranking.rbegin(), ranking.rend());
      std::vector<double> mean(kDim);
      for (std::size_t i = 0; i < kStand; ++i) {
        const auto at = static_cast<std::size_t>(ranking[i].second);
        std::vector<double> key;
        for (std::size_t c = 0; c < kDim; ++c)
          key.push_back(static_cast<double>(cache_->key(at, c, head / kGroup)));
        key = turned(key, -static_cast<double>(at));
        for (std::size_t c = 0; c < kDim; ++c) mean[c] += key[c] / kStand;
      }
      out.push_back(std::move(mean));
    }
    return out;
  }

  const SelectedCache* cache_;
  std::map<Position, int> block_;                         // -1: a sink
  std::vector<std::vector<std::vector<double>>> blocks_;  // [block][head][dim]
};

}  // namespace

TEST_CASE("infllm: a worked example", "[infllm]") {
  // A sink, then blocks of two tokens; the two before the query's own are the window, and 7 waits for its
  // block. Each token's score is its key times its two following queries: of 1 and 2 (2 and 6) the second
  // stands for its block, of 3 and 4 (0 and 10) the second, whose followers ask for the opposite, of 5 and 6
  // (0 and 10) the second. Mean keys are 3, -5 and 2.5.
  SelectedShape shape{.selection = "infllm(read=2,block=2,representatives=1,sinks=1,local=2)",
                      .prompt = 10,
                      .dim = 1,
                      .length = 12};
  shape.keys = {9, 1, 3, -1, -5, 2, 2.5, 0, 4, 0, 0, 0};
  shape.queries = {1, 1, 1, 1, 1, -1, -1, 1, 3, 1, 1, -1};
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 1, 2, 7, 8, 9, 10});
  CHECK((cache.index_bits() == 3 * 16 && cache.index_bits_read() == 3 * 16));
  // 7 and 8 have become a block, of key 4. The opposite is asked for.
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 3, 4, 9, 10, 11});
  CHECK(cache.index_bits() == 4 * 16);
  // Where both tokens stand for a block, its key is their mean: 2, -3 and 2.25.
  shape.selection = "infllm(read=2,block=2,representatives=2,sinks=1,local=2)";
  SelectedCache both(shape);
  both.append();
  CHECK(both.read() == std::set<Position>{0, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("infllm: reads what the definition says, whatever is evicted", "[infllm]") {
  for (const std::size_t every : {1, 2})
    for (const bool again : {false, true}) {
      SelectedCache cache({.selection = "infllm(read=12,block=4,representatives=2,sinks=3,local=9)",
                           .prompt = 121,
                           .n_lanes = kLanes,
                           .dim = kDim,
                           .group = kGroup,
                           .every = every,
                           .inv_freq = kInvFreq});
      Slow slow(cache);
      if (again) {
        cache.ask_again();
        CHECK(cache.read() == slow.read(120, 3));
      }
      for (std::size_t step = 1; step <= 60; ++step) {
        std::vector<std::size_t> victims;
        if (step >= 30) victims = {(step * 7) % cache.slots().size()};
        if (step >= 40) victims.push_back((victims[0] + 5) % cache.slots().size());
        cache.append(victims);
        const std::set<Position> expected = slow.read(cache.position(), 3);
        for (std::size_t head = 0; head < kLanes * kGroup; ++head) CHECK(cache.read(head) == expected);
        CHECK(cache.index_bits() == 16 * slow.blocks() * kLanes * kGroup * kDim);
      }
      CHECK(slow.blocks() > 20);
    }
}

TEST_CASE("infllm: limits, and what it says that it reads", "[infllm]") {
  SelectedCache all({.selection = "infllm(read=100%,block=4,sinks=2,local=5)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  CHECK(all.index_bits_read() == 0);
  SelectedCache defaults({.selection = "infllm", .prompt = 500});
  defaults.append();
  CHECK(defaults.read().size() == 501);
  SelectedCache dense({.selection = "infllm(read=4,block=4,sinks=2,local=5,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
  // Less than a block is read: sinks, window, and what waits for its block.
  SelectedCache none({.selection = "infllm(read=3,block=4,sinks=2,local=5)", .prompt = 50});
  none.append();
  CHECK(none.read() == std::set<Position>{0, 1, 42, 43, 44, 45, 46, 47, 48, 49, 50});

  SelectedCache cache(
      {.selection = "infllm(read=25%,block=4,sinks=2,local=7)", .prompt = 103, .n_lanes = 2, .group = 2});
  const CostShape shape{
      .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 103};
  for (int step = 0; step < 9; ++step) {
    cache.append();
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    for (std::size_t head = 0; head < 4; ++head)
      CHECK(static_cast<double>(cache.read(head).size()) == count.head_tokens);
    CHECK(count.lane_tokens == count.head_tokens);
    CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
    CHECK(static_cast<double>(cache.index_bits_read()) == 8 * count.index_bytes_read);
  }
  CHECK(parse_composition("full+infllm", builtin()).layer_unit());
}

TEST_CASE("infllm: 128K tokens of Llama-3-8B", "[infllm]") {
  // Of 131,072 tokens the paper's configuration reads 128 + 16 * 128 + 4096 and what waits for its block.
  const CostShape shape{
      .n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128, .prompt = 131072};
  const Part part = *parse_composition("full+infllm", builtin()).selection;
  const ReadCount count = part.reads(shape, 0, 131072);
  CHECK(count.head_tokens == 128 + 2048 + 4096 + 128);
  CHECK(count.index_bytes == 990 * 32 * 128 * 2);
}

}  // namespace kvsim::policy::test::test_selection_infllm
