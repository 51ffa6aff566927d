// ShadowKV: chunks of the prompt whose mean key a query attends most, and those that no mean stands for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "policies/parts/codes/outlier_chunks.hpp"
#include "policies/parts/index/reading.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::policy::shadowkv {
namespace {

struct Rule {
  Amount read;
  std::size_t chunk = 8, outliers = 48, local = 4, align = 1;

  /// Chunks of a prompt of n tokens that are not always read for being its last.
  std::size_t chunks(std::size_t n) const {
    const std::size_t all = n / chunk - std::min(n / chunk, local);
    return all - all % align;
  }
  std::size_t outliers_of(std::size_t n) const { return std::min(outliers, chunks(n)); }
  std::size_t landmarks(std::size_t n) const { return chunks(n) - outliers_of(n); }
  /// Chunks that a query reads for their landmarks, if there are as many.
  std::size_t chosen(std::size_t stored) const { return static_cast<std::size_t>(read.of(stored)) / chunk; }
};

class ShadowkvSelector final : public UnitSelector {
 public:
  ShadowkvSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), lanes_(n_lanes_) {}

  void begin(const Prompt& prompt, const StoredTokens& tokens) override {
    const std::vector<Position> kept = ascending(tokens.positions());
    const std::size_t chunks = rule_.chunks(kept.size());
    chunk_of_.assign(prompt.first() + prompt.length(), kNone);
    for (std::size_t i = 0; i < chunks * rule_.chunk; ++i)
      chunk_of_[static_cast<std::size_t>(kept[i])] = i / rule_.chunk;
    held_.resize(chunks);
    reads_.resize(chunks);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      // Means and outliers are of the keys before a representation has changed them.
      const MatrixView keys = prompt.keys(static_cast<int>(lane));
      const auto key = [&](std::size_t i) {
        return keys.row(static_cast<std::size_t>(kept[i]) - prompt.first());
      };
      lanes_[lane].outlier = outlier_chunks(chunks, rule_.chunk, rule_.outliers_of(kept.size()), key);
      mean_keys(lanes_[lane], key);
    }
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), landmarks = lanes_[0].chunks.size();
    const std::size_t chosen = rule_.chosen(slots);
    if (chosen >= landmarks) return reads.everything(slots);
    // Chunks whose tokens have all been evicted are no longer chosen.
    std::ranges::fill(held_, 0);
    for (const Position position : tokens.positions())
      if (const std::size_t chunk = chunk_at(position); chunk != kNone) held_[chunk] = 1;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      score(asking, lane);
      highest_scores(scores_, chosen, best_);
      reads_ = lanes_[lane].outlier;
      for (const std::size_t landmark : best_) reads_[lanes_[lane].chunks[landmark]] = 1;
      std::vector<std::size_t>& first = reads.of(lane * group_);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        const std::size_t chunk = chunk_at(tokens.positions()[slot]);
        if (chunk == kNone || reads_[chunk] != 0) first.push_back(slot);
      }
      for (std::size_t head = 1; head < group_; ++head) reads.of(lane * group_ + head) = first;
    }
    reads.index_bits += index_bits();
  }

  std::uint64_t index_bits() const override {
    std::uint64_t numbers = 0;
    for (const Lane& lane : lanes_) numbers += lane.landmarks.size();
    return 16 * numbers;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Lane {
    std::vector<char> outlier;        ///< per chunk
    std::vector<std::size_t> chunks;  ///< those that are none, ascending
    std::vector<float> landmarks;     ///< of them, [chunks][dim]
  };

  /// The chunk of a token, of those that are not always read.
  std::size_t chunk_at(Position position) const {
    const auto at = static_cast<std::size_t>(position);
    return at < chunk_of_.size() ? chunk_of_[at] : kNone;
  }

  template <class Key>
  void mean_keys(Lane& lane, const Key& key) const {
    std::vector<double> sum(dim_);
    for (std::size_t chunk = 0; chunk < lane.outlier.size(); ++chunk) {
      if (lane.outlier[chunk] != 0) continue;
      std::ranges::fill(sum, 0);
      for (std::size_t i = chunk * rule_.chunk; i < (chunk + 1) * rule_.chunk; ++i)
        for (std::size_t c = 0; c < dim_; ++c) sum[c] += static_cast<double>(key(i)[c]);
      lane.chunks.push_back(chunk);
      for (const double x : sum)
        lane.landmarks.push_back(static_cast<float>(x / static_cast<double>(rule_.chunk)));
    }
  }

  /// scores_[landmark] = the most of the softmax of q.landmark over the query heads of the lane.
  void score(const Asking& asking, std::size_t lane) {
    const Lane& of = lanes_[lane];
    scores_.assign(of.chunks.size(), 0);
    for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) {
      logits_.resize(of.chunks.size());
      for (std::size_t i = 0; i < logits_.size(); ++i)
        logits_[i] = static_cast<float>(asking.scale) *
                     dot(asking.queries.row(head).data(), of.landmarks.data() + i * dim_, dim_);
      float most = -std::numeric_limits<float>::infinity();
      for (const float logit : logits_) most = std::max(most, logit);
      double sum = 0;
      for (std::size_t i = 0; i < logits_.size(); ++i) {
        if (held_[of.chunks[i]] == 0) continue;
        logits_[i] = std::exp(logits_[i] - most);
        sum += static_cast<double>(logits_[i]);
      }
      for (std::size_t i = 0; i < logits_.size(); ++i)
        scores_[i] = std::max(scores_[i], static_cast<float>(static_cast<double>(logits_[i]) / sum));
    }
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (held_[of.chunks[i]] == 0) scores_[i] = -1;
  }

  Rule rule_;
  std::vector<std::size_t> chunk_of_;  ///< per position of the prompt
  std::vector<Lane> lanes_;
  std::vector<char> held_, reads_;  ///< per chunk
  std::vector<float> logits_, scores_;
  std::vector<std::size_t> best_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("chunk"), params.count("outliers"), params.count("local"),
          params.count("align")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  const std::size_t landmarks = rule.landmarks(std::min(shape.prompt, stored)), chosen = rule.chosen(stored);
  const double index = static_cast<double>(landmarks * shape.kv_heads * shape.head_dim * 2);
  ReadCount out = dense_reads(chosen >= landmarks ? stored : stored - (landmarks - chosen) * rule.chunk);
  out.index_bytes = index;
  out.run_tokens = static_cast<double>(rule.chunk);
  if (chosen < landmarks) out.index_bytes_read = index;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "shadowkv",
      .summary = "reads the chunks of the prompt whose mean key is attended most, outliers and what is new",
      .paper =
          "Sun, Chang, Bao, Zheng, Zheng, Liu, Dong, Chi, Chen, ShadowKV: KV Cache in Shadows for "
          "High-Throughput Long-Context LLM Inference, ICML 2025, https://arxiv.org/abs/2410.21465",
      .details =
          "The prompt is cut into chunks of 8 tokens. Of each KV head, the 48 chunks in which a key is least "
          "like the mean, by cosine, are always read, as are the prompt's last four chunks, what is behind "
          "them and every generated token. The mean keys of the others are their landmarks. A query head "
          "takes the softmax over all landmarks; a KV head reads the read / 8 chunks that have the most of "
          "it in any of its query heads. How ShadowKV stores keys is shadowkv_keys; the preset shadowkv has "
          "both.",
      .departures =
          {{"authors' code: prompts of up to 4096 tokens are read as a whole", "all are read by landmarks"},
           {"authors' code: the softmax is rounded to bfloat16 before chunks are chosen", "it is not"},
           {"authors' code for the processor: landmarks in multiples of 8, and 24 outliers per 1024 tokens "
            "of the budget",
            "align=8, with outliers= as the budget has it; the preset shadowkv.cpu has the 48 of 2048 "
            "tokens"},
           {"paper and code: nothing is evicted",
            "chunks are of successive tokens that are kept; a landmark stays as long as one of its tokens"}},
      .params = {read_param("2048"), count_param("chunk", "8", {1, 1 << 20}, "tokens of a chunk"),
                 count_param("outliers", "48", {0, 1 << 20}, "chunks of each KV head that are always read"),
                 count_param("local", "4", {0, 1 << 20},
                             "last chunks of the prompt that are always read, and what is behind them"),
                 count_param("align", "1", {1, 1 << 20},
                             "landmarks and outliers are a multiple of this; further chunks are local"),
                 dense_param(0)},
      .needs = {.keys = true},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<ShadowkvSelector>(rule_of)}};
}

}  // namespace kvsim::policy::shadowkv
