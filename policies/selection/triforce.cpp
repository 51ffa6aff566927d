// TriForce's retrieval cache: chunks of the prompt that its last query attends, then what is new.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "policies/parts/index/reading.hpp"

namespace kvsim::policy::triforce {
namespace {

struct Rule {
  Amount read;
  std::size_t chunk = 8, rebuild = 0;
};

class TriforceSelector final : public UnitSelector {
 public:
  TriforceSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), place_(n_lanes_) {}

  void begin(const Prompt& prompt, const StoredTokens& tokens) override {
    const std::vector<Position> kept = ascending(tokens.positions());
    chunks_ = (kept.size() + rule_.chunk - 1) / rule_.chunk;
    index_of_.assign(prompt.first() + prompt.length(), 0);
    for (std::size_t i = 0; i < kept.size(); ++i) index_of_[static_cast<std::size_t>(kept[i])] = i;
    for (std::size_t lane = 0; lane < place_.size(); ++lane)
      rank(lane, tokens,
           [&](std::size_t head) { return prompt.queries(static_cast<int>(head)).row(prompt.length() - 1); });
  }

  void joined(std::size_t /*own_slot*/, std::size_t /*moved_from*/, const StoredTokens& /*tokens*/) override {
    due_ = rule_.rebuild > 0 && ++generated_ % rule_.rebuild == 0;
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = static_cast<std::size_t>(rule_.read.of(slots));
    for (std::size_t lane = 0; lane < place_.size(); ++lane) {
      if (due_)
        reads.index_bits +=
            16 * dim_ * rank(lane, tokens, [&](std::size_t head) { return asking.queries.row(head); });
      // The newest generated token first, the tail of the worst chunk last.
      order_.resize(slots);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        const Position position = tokens.positions()[slot];
        order_[slot] = {from_prompt(position) ? place_[lane][index(position)] : -1 - std::int64_t{position},
                        slot};
      }
      if (count < slots)
        std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end());
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
        for (std::size_t i = 0; i < count; ++i) reads.of(head).push_back(order_[i].second);
    }
    due_ = false;
  }

 private:
  bool from_prompt(Position position) const { return static_cast<std::size_t>(position) < index_of_.size(); }
  /// Among what was kept of the prompt.
  std::size_t index(Position position) const { return index_of_[static_cast<std::size_t>(position)]; }

  /// Orders the prompt's tokens of a lane: the first chunk, then the others as the queries of the lane's
  /// heads together attend their mean keys; of equals the later one. Returns how many keys it has read.
  template <class Query>
  std::size_t rank(std::size_t lane, const StoredTokens& tokens, const Query& query) {
    std::vector<double> sums(chunks_ * dim_), scores(chunks_, -std::numeric_limits<double>::infinity());
    std::vector<std::size_t> counts(chunks_);
    std::size_t read = 0;
    for (std::size_t slot = 0; slot < tokens.slots(); ++slot) {
      if (!from_prompt(tokens.positions()[slot])) continue;
      const std::size_t chunk = index(tokens.positions()[slot]) / rule_.chunk;
      const std::span<const float> key = tokens.key(lane, slot);
      for (std::size_t c = 0; c < dim_; ++c) sums[chunk * dim_ + c] += static_cast<double>(key[c]);
      ++counts[chunk];
      ++read;
    }
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
      if (counts[chunk] == 0) continue;
      double score = 0;
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
        for (std::size_t c = 0; c < dim_; ++c)
          score += static_cast<double>(query(head)[c]) * sums[chunk * dim_ + c];
      if (!std::isnan(score)) scores[chunk] = score / static_cast<double>(counts[chunk]);
    }
    if (chunks_ > 0) scores[0] = std::numeric_limits<double>::infinity();
    std::vector<std::size_t> best(chunks_);
    std::iota(best.begin(), best.end(), std::size_t{0});
    std::ranges::sort(best, [&](std::size_t a, std::size_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
    });
    place_[lane].resize(chunks_ * rule_.chunk);
    for (std::size_t i = 0; i < chunks_; ++i)
      for (std::size_t j = 0; j < rule_.chunk; ++j)
        place_[lane][best[i] * rule_.chunk + j] = static_cast<std::int64_t>(i * rule_.chunk + j);
    return read;
  }

  Rule rule_;
  std::vector<std::size_t> index_of_;  ///< per position of the prompt
  std::size_t chunks_ = 0;
  std::vector<std::vector<std::int64_t>> place_;  ///< per lane and token kept of the prompt; 0 is read first
  std::size_t generated_ = 0;
  bool due_ = false;
  std::vector<std::pair<std::int64_t, std::size_t>> order_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("chunk"), params.count("rebuild")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  ReadCount out = dense_reads(static_cast<std::size_t>(rule.read.of(stored)));
  out.run_tokens = static_cast<double>(rule.chunk);
  if (rule.rebuild > 0)
    out.index_bytes_read =
        static_cast<double>(std::min(shape.prompt, stored) * shape.kv_heads * shape.head_dim * 2) /
        static_cast<double>(rule.rebuild);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "triforce",
      .summary = "reads the chunks of the prompt that its last query attends most, then what is new",
      .paper =
          "Sun, Chen, Yang, Tian, Chen, TriForce: Lossless Acceleration of Long Sequence Generation with "
          "Hierarchical Speculative Decoding, COLM 2024, https://arxiv.org/abs/2404.11912",
      .details =
          "TriForce's retrieval cache. The prompt is cut into chunks of 8 tokens, which the prompt's last "
          "query scores, once, by its product with their mean keys. A KV head reads the first chunk and "
          "those of the highest scores. Generated tokens take the places of the last chosen tokens, so "
          "that `read` tokens are read at every step. With `rebuild` the chunks are chosen anew every so "
          "many generated tokens, by the query of the step, for which all keys of the prompt are read.",
      .departures =
          {{"paper: a draft's cache; what it drafts is verified by a model that reads everything",
            "the model itself reads it; kvsim evaluate --mode draft verifies, with --draft and --draft-cache under "
            "a smaller model's drafts"},
           {"authors' code: up to `gamma` drafted tokens are read beside the budget", "inside it"},
           {"authors' code: a query head per KV head",
            "the scores of the query heads that share a KV head are added"},
           {"authors' code: prompts in whole chunks, and no more generated tokens than the budget has",
            "the last chunk may be shorter; beyond, the newest tokens are read"}},
      .params = {read_param("4096"), count_param("chunk", "8", {1, 4096}, "tokens of a chunk", "tokens"),
                 count_param("rebuild", "0", {0, 1 << 20},
                             "generated tokens after which chunks are chosen anew; 0: never", "tokens"),
                 dense_param(0)},
      .needs = {.keys = true, .queries = true},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<TriforceSelector>(rule_of)}};
}

}  // namespace kvsim::policy::triforce
