// ReKV: blocks of the context that a question asks for, chosen once.
#include <algorithm>
#include <limits>
#include <vector>

#include "policies/parts/index/reading.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy::rekv {
namespace {

struct Rule {
  Amount read;
  std::size_t block = 196, sinks = 0, local = 0, question = 1, together = 1;

  /// Tokens of a prompt's blocks, which begin behind the sinks.
  std::size_t blocks(std::size_t prompt) const { return (prompt - std::min(prompt, sinks + local)) / block; }
  /// Groups of `together` blocks that a question chooses.
  std::size_t chosen(std::size_t stored) const {
    const auto tokens = static_cast<std::size_t>(read.of(stored));
    return tokens == stored ? stored : tokens / (block * together);
  }
};

class RekvSelector final : public UnitSelector {
 public:
  RekvSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), question_(n_lanes_ * dim_) {}

  void begin(const Prompt& prompt, const StoredTokens& tokens) override {
    const Rotary rotary = prompt.rotary();
    inv_freq_.assign(rotary.inv_freq.begin(), rotary.inv_freq.end());
    rotary_ = rotary;
    rotary_.inv_freq = inv_freq_;
    const std::vector<std::size_t> kept = least_first(tokens.positions());  // slots
    const std::size_t blocks = rule_.blocks(kept.size());
    block_of_.assign(prompt.first() + prompt.length(), kNone);
    std::vector<double> sums(blocks * n_lanes_ * dim_);
    row_.resize(dim_);
    for (std::size_t i = 0; i < blocks * rule_.block; ++i) {
      const std::size_t slot = kept[rule_.sinks + i];
      const Position position = tokens.positions()[slot];
      block_of_[static_cast<std::size_t>(position)] = i / rule_.block;
      for (std::size_t lane = 0; lane < n_lanes_; ++lane) {
        unrotated(tokens.key(lane, slot), position);
        double* sum = sums.data() + (i / rule_.block * n_lanes_ + lane) * dim_;
        for (std::size_t c = 0; c < dim_; ++c) sum[c] += static_cast<double>(row_[c]);
      }
    }
    means_.clear();
    for (const double sum : sums)
      means_.push_back(static_cast<float>(sum / static_cast<double>(rule_.block)));
    reads_.assign(blocks, 0);
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots();
    if (rule_.chosen(slots) * rule_.together >= reads_.size()) return reads.everything(slots);
    if (asked_ < rule_.question) {
      ++asked_;
      ask(asking, slots);
      reads.index_bits += index_bits();
    }
    std::vector<std::size_t>& first = reads.of(0);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto at = static_cast<std::size_t>(tokens.positions()[slot]);
      const std::size_t block = at < block_of_.size() ? block_of_[at] : kNone;
      if (block == kNone || reads_[block] != 0) first.push_back(slot);
    }
    for (std::size_t head = 1; head < reads.heads(); ++head) reads.of(head) = first;
  }

  std::uint64_t index_bits() const override { return 16 * means_.size(); }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void unrotated(std::span<const float> row, Position position) {
    std::ranges::copy(row, row_.begin());
    unrotate(rotary_, static_cast<std::uint64_t>(position), dim_, row_);
  }

  /// Chooses blocks by the mean query of the question so far.
  void ask(const Asking& asking, std::size_t slots) {
    // Query heads that share a KV head have the same key: their queries add up, and the mean of several
    // tokens ranks as their sum.
    for (std::size_t head = 0; head < n_lanes_ * group_; ++head) {
      unrotated(asking.queries.row(head), asking.position);
      for (std::size_t c = 0; c < dim_; ++c)
        question_[head / group_ * dim_ + c] += static_cast<double>(row_[c]);
    }
    const std::size_t width = n_lanes_ * dim_, blocks = reads_.size();
    std::vector<float> scores;
    for (std::size_t first = 0; first < blocks; first += rule_.together) {
      const std::size_t end = std::min(first + rule_.together, blocks);
      double sum = 0;
      for (std::size_t block = first; block < end; ++block)
        for (std::size_t c = 0; c < width; ++c)
          sum += question_[c] * static_cast<double>(means_[block * width + c]);
      scores.push_back(static_cast<float>(sum / static_cast<double>(end - first)));
    }
    std::vector<std::size_t> best;
    highest_scores(scores, rule_.chosen(slots), best);
    std::ranges::fill(reads_, 0);
    for (const std::size_t of : best)
      for (std::size_t block = of * rule_.together; block < std::min((of + 1) * rule_.together, blocks);
           ++block)
        reads_[block] = 1;
  }

  Rule rule_;
  Rotary rotary_;
  std::vector<float> inv_freq_;
  std::vector<std::size_t> block_of_;  ///< per position of the prompt
  std::vector<float> means_;           ///< [blocks][lanes][dim], before rotation
  std::vector<char> reads_;            ///< per block
  std::vector<double> question_;       ///< the sum of its queries, [lanes][dim]
  std::size_t asked_ = 0;
  std::vector<float> row_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("block"),    params.count("sinks"),
          params.count("local"), params.count("question"), params.count("together")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  const std::size_t blocks = rule.blocks(std::min(shape.prompt, stored)),
                    chosen = rule.chosen(stored) * rule.together;
  ReadCount out = dense_reads(chosen >= blocks ? stored : stored - (blocks - chosen) * rule.block);
  out.run_tokens = static_cast<double>(rule.block);
  out.index_bytes = static_cast<double>(blocks * shape.kv_heads * shape.head_dim * 2);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "rekv",
      .summary = "reads the blocks of the prompt that a question asks for, chosen once per layer",
      .paper =
          "Di, Yu, Zhang, Li, Tao, Cheng, Li, He, Shu, Jiang, Streaming Video Question-Answering with "
          "In-context Video KV-Cache Retrieval, ICLR 2025, https://github.com/Becomebright/ReKV",
      .details =
          "The prompt is cut into blocks: frames of 196 tokens in the paper. The mean key of a block, before "
          "rotation and of all KV heads side by side, is scored by its product with the question's mean "
          "query, also before rotation. All heads of a layer read the read / block blocks of the highest "
          "scores until the answer ends, and with them the first `sinks` tokens, what is behind the last "
          "whole block, and every token behind the cut.",
      .departures =
          {{"authors' code: the queries are those of the question's tokens, all of which it has before it "
            "reads",
            "the first `question` queries behind the cut, each of which reads by the mean so far: with "
            "--cut question, give as many as the question has; each step that asks reads the index"},
           {"authors' code: the first tokens are those of the model's template", "sinks=, as many"},
           {"authors' code: retrieved tokens get positions without gaps", "they keep those of the text"},
           {"authors' code: the context has been read in a sliding window, and its newest tokens are not "
            "read unless they are retrieved",
            "the prompt attends everything; local= tokens of its end are always read"},
           {"authors' code: keys are repeated for every query head in the index", "they are not"}},
      .params = {read_param("12544"),
                 count_param("block", "196", {1, 1 << 20}, "tokens of a block", "tokens"),
                 count_param("sinks", "0", {0, 1 << 20}, "first tokens of the prompt, always read", "tokens"),
                 count_param("local", "0", {0, 1 << 20}, "last tokens of the prompt, always read", "tokens"),
                 count_param("question", "1", {1, 1 << 20}, "first tokens behind the cut, which choose",
                             "tokens"),
                 count_param("together", "1", {1, 1 << 20},
                             "neighbouring blocks that are chosen together, by their mean score", "blocks"),
                 dense_param(0)},
      .needs = {.keys = true, .queries = true},
      .layer_unit = [](const Params&) { return true; },
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<RekvSelector>(rule_of)}};
}

}  // namespace kvsim::policy::rekv
