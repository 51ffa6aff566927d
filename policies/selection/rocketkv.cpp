// RocketKV's second stage: tokens by logits of few components with the bounds of small pages.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "policies/parts/index/reading.hpp"
#include "policies/parts/index/slot_bounds.hpp"

namespace kvsim::policy::rocketkv {
namespace {

/// What an index of `held` tokens reads as much of as half of the traffic of `budget` tokens.
struct Sketch {
  std::size_t page = 1, components = 0;

  Sketch() = default;
  Sketch(Amount read, std::size_t held, std::size_t dim) {
    const auto budget = static_cast<double>(std::max<std::uint64_t>(read.of(held), 1));
    const double ratio = std::max(1.0, static_cast<double>(held) / budget);
    const auto root = static_cast<std::size_t>(std::ceil(std::sqrt(ratio)));
    page = static_cast<double>(root) <= ratio ? root : 1;
    components = static_cast<std::size_t>(static_cast<double>(dim * page) / ratio);
  }
};

/// The other half: tokens that a query reads; all where the budget pays for them.
std::size_t tokens_of(Amount read, std::size_t stored) {
  const auto budget = static_cast<std::size_t>(read.of(stored));
  return budget == stored ? stored : budget / 2;
}

class RocketSelector final : public UnitSelector {
 public:
  RocketSelector(Amount read, const CacheUnit& unit) : UnitSelector(unit), read_(read), bounds_(1, 0, 0) {}

  void begin(const Prompt& /*prompt*/, const StoredTokens& tokens) override {
    sketch_ = Sketch(read_, tokens.slots(), dim_);
    bounds_ = SlotBounds(sketch_.page, n_lanes_, dim_);
    bounds_.begin(tokens);
  }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) override {
    bounds_.joined(own_slot, moved_from, tokens);
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), pages = bounds_.blocks().count(slots);
    const std::size_t count = tokens_of(read_, slots);
    if (count == slots) return reads.everything(slots);
    for (std::size_t lane = 0; lane < n_lanes_; ++lane) {
      score(asking, lane, pages, slots);
      scores_.resize(slots);
      for (std::size_t slot = 0; slot < slots; ++slot) scores_[slot] = page_scores_[slot / sketch_.page];
      highest_scores(scores_, count, reads.of(lane * group_));
      for (std::size_t head = 1; head < group_; ++head)
        reads.of(lane * group_ + head) = reads.of(lane * group_);
    }
    reads.index_bits += 16 * n_lanes_ * sketch_.components * pages;
  }

  std::uint64_t index_bits() const override {
    // Pages of a single key have one bound.
    return sketch_.page == 1 ? bounds_.bits() / 2 : bounds_.bits();
  }

 private:
  /// page_scores_ = the mean over the lane's query heads of the softmax that a token of the page would have.
  void score(const Asking& asking, std::size_t lane, std::size_t pages, std::size_t slots) {
    // The heads of a lane agree on the sign of each component and on those that count.
    sizes_.assign(dim_, 0);
    signs_.assign(dim_, 0);
    for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
      for (std::size_t c = 0; c < dim_; ++c) {
        sizes_[c] += std::abs(asking.queries(head, c));
        signs_[c] += asking.queries(head, c);
      }
    highest_scores(sizes_, sketch_.components, chosen_);
    page_scores_.assign(pages, 0);
    logits_.resize(pages);
    for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) {
      const std::span<const float> query = asking.queries.row(head);
      double part = 0, whole = 0;
      for (const std::size_t c : chosen_) part += static_cast<double>(std::abs(query[c]));
      for (const float x : query) whole += static_cast<double>(std::abs(x));
      // Few components make small products: the softmax is as much sharper.
      const double scale = part > 0 ? asking.scale / std::sqrt(part / whole) : asking.scale;
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::size_t page = 0; page < pages; ++page) {
        const float *least = bounds_.least(lane, page), *largest = bounds_.largest(lane, page);
        double product = 0;
        for (const std::size_t c : chosen_)
          product +=
              static_cast<double>(query[c]) * static_cast<double>(signs_[c] > 0 ? largest[c] : least[c]);
        logits_[page] = product * scale;
        most = std::max(most, logits_[page]);
      }
      for (std::size_t page = 0; page < pages; ++page) {
        const auto [first, end] = bounds_.blocks().of(page, slots);
        logits_[page] = std::exp(logits_[page] - most);
        sum += static_cast<double>(end - first) * logits_[page];
      }
      for (std::size_t page = 0; page < pages; ++page)
        page_scores_[page] += static_cast<float>(logits_[page] / sum);
    }
  }

  Amount read_;
  Sketch sketch_;
  SlotBounds bounds_;
  std::vector<float> sizes_, signs_, scores_, page_scores_;
  std::vector<double> logits_;
  std::vector<std::size_t> chosen_;
};

Amount rule_of(const Params& params) {
  return params.amount("read");
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Amount read = params.amount("read");
  const Sketch sketch(read, std::min(shape.prompt, stored), shape.head_dim);
  const std::size_t pages = SlotBlocks(sketch.page).count(stored) * shape.kv_heads,
                    count = tokens_of(read, stored);
  ReadCount out = dense_reads(count);
  out.index_bytes = static_cast<double>(pages * shape.head_dim * 2 * (sketch.page == 1 ? 1 : 2));
  if (count < stored) out.index_bytes_read = static_cast<double>(pages * sketch.components * 2);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "rocketkv",
      .summary = "reads tokens by few components of the query and the bounds of small pages",
      .paper =
          "Behnam, Fu, Zhao, Tsai, Yu, Tumanov, RocketKV: Accelerating Long-Context LLM Inference via "
          "Two-Stage KV Cache Compression, ICML 2025, https://arxiv.org/abs/2502.14051",
      .details =
          "The hybrid sparse attention of RocketKV's second stage. `read` is what a step may read, in "
          "tokens: half of it tokens, half the index. With c the number of tokens held of the prompt over "
          "`read`, pages are of ceil(sqrt(c)) tokens, if that is at most c, or else one, and dim * page / c "
          "components of the queries count, those that are largest in the mean over the query heads of a KV "
          "head. In each of them a page stands for its largest key component where the heads' queries add up "
          "to a positive number, and for its least elsewhere. The softmax of these products over all tokens "
          "is sharpened by the share of the query's size that counts, and averaged over the heads; a KV head "
          "reads the read / 2 tokens that have the most. The first stage is SnapKV with wide pooling: the "
          "preset rocketkv has both.",
      .departures =
          {{"authors' code: c is of the tokens that the cache has room for, generated ones included",
            "of those held when the prompt ends"},
           {"authors' code: of S prompt tokens under a budget of S / C, the first stage keeps S / C^a with "
            "a = min(0.2 + 0.06 log2 C, 0.8), less the tokens that will be generated",
            "the budget of the cell, whatever C is: the cell's budget is S / C^a, read= is S / C"},
           {"authors' code: half of the tokens are read even where the budget pays for all", "all are read"},
           {"gpt-fast kernels: page = min(floor(c), ceil(sqrt(c))), components are rounded",
            "as in the accuracy code: page = 1 where ceil(sqrt(c)) is above c, components are rounded down"},
           {"paper, multi-turn: nothing is evicted, and each turn chooses anew what may be read",
            "not here"}},
      .params = {read_param("1024"), dense_param(0)},
      .needs = {.keys = true},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<RocketSelector>(rule_of)}};
}

}  // namespace kvsim::policy::rocketkv
