// Quest: pages whose best possible logit is highest.
#include <algorithm>
#include <limits>
#include <vector>

#include "policies/parts/index/reading.hpp"
#include "policies/parts/index/slot_bounds.hpp"

namespace kvsim::policy::quest {
namespace {

struct Rule {
  Amount read;
  std::size_t page = 16;
  bool last = false;

  /// Pages that a query reads.
  std::size_t pages(std::size_t stored) const {
    const auto tokens = static_cast<std::size_t>(read.of(stored));
    return tokens == stored ? (stored + page - 1) / page : std::max<std::size_t>(kFewest, tokens / page);
  }
  static constexpr std::size_t kFewest = 3;
};

class QuestSelector final : public UnitSelector {
 public:
  QuestSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), bounds_(rule.page, n_lanes_, dim_) {}

  void begin(const Prompt& /*prompt*/, const StoredTokens& tokens) override { bounds_.begin(tokens); }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) override {
    bounds_.joined(own_slot, moved_from, tokens);
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), pages = bounds_.blocks().count(slots);
    const std::size_t chosen = rule_.pages(slots);
    if (chosen >= pages) return reads.everything(slots);
    for (std::size_t head = 0; head < n_lanes_ * group_; ++head) {
      score(asking.queries.row(head), head / group_, pages);
      // The page of the newest token is first of all, where it is always read.
      if (rule_.last) scores_[pages - 1] = std::numeric_limits<float>::infinity();
      highest_scores({scores_.data(), pages}, chosen, pages_);
      std::vector<std::size_t>& of = reads.of(head);
      for (const std::size_t page : pages_) {
        const auto [first, end] = bounds_.blocks().of(page, slots);
        for (std::size_t slot = first; slot < end; ++slot) of.push_back(slot);
      }
    }
    reads.index_bits += index_bits();
  }

  std::uint64_t index_bits() const override { return bounds_.bits(); }

 private:
  void score(std::span<const float> query, std::size_t lane, std::size_t pages) {
    scores_.resize(pages);
    for (std::size_t page = 0; page < pages; ++page) {
      const float* least = bounds_.least(lane, page);
      const float* largest = bounds_.largest(lane, page);
      constexpr std::size_t kSums = 16;
      float sums[kSums] = {};
      std::size_t c = 0;
      for (; c + kSums <= dim_; c += kSums)
        for (std::size_t j = 0; j < kSums; ++j)
          sums[j] += std::max(query[c + j] * least[c + j], query[c + j] * largest[c + j]);
      float sum = 0;
      for (const float s : sums) sum += s;
      for (; c < dim_; ++c) sum += std::max(query[c] * least[c], query[c] * largest[c]);
      scores_[page] = sum;
    }
  }

  Rule rule_;
  SlotBounds bounds_;
  std::vector<float> scores_;
  std::vector<std::size_t> pages_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("page"), params.flag("last")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  const std::size_t pages = SlotBlocks(rule.page).count(stored), chosen = rule.pages(stored);
  const double index = static_cast<double>(pages * shape.kv_heads * shape.head_dim * 2 * 2);
  if (chosen >= pages) {
    ReadCount all = dense_reads(stored);
    all.index_bytes = index;
    return all;
  }
  ReadCount out = chosen_reads(shape, stored, static_cast<double>(chosen * rule.page));
  out.index_bytes = out.index_bytes_read = index;
  out.run_tokens = static_cast<double>(rule.page);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "quest",
      .summary = "reads the pages whose best possible logit is highest",
      .paper = "Tang et al., Quest, ICML 2024, arXiv 2406.10774",
      .details =
          "Of each page of 16 stored tokens and each KV head the least and the largest of every key "
          "component is kept. Sum over components of max(q * least, q * largest) bounds the logit of any key "
          "in the page. A query head reads the read / page pages of the highest bounds, at least 3, and the "
          "first two layers read everything.",
      .departures = {{"authors' kernels: the last page is always read, and the others compete for the rest",
                      "as in the authors' evaluation, all pages compete; last=true is the kernels'"},
                     {"authors' evaluation: the last page is padded with the least number of the type",
                      "the last page is bounded by the keys that it has"}},
      .params = {read_param("1024"), count_param("page", "16", {1, 4096}, "tokens per page", "tokens"),
                 flag_param("last", "false", "always read the page of the newest token"), dense_param(2)},
      .needs = {.keys = true},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<QuestSelector>(rule_of)}};
}

}  // namespace kvsim::policy::quest
