// SparQ: logits from the few channels in which the query is largest.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "policies/parts/index/reading.hpp"

namespace kvsim::policy::sparq {
namespace {

constexpr std::size_t kNumberBytes = 2;

struct Rule {
  Amount read;
  std::size_t channels = 32;
  double local = 0.25;  ///< share of what is read that is the newest tokens
  bool copy = true;     ///< keys are stored by channel, too
  std::size_t page_bytes = 0;
  bool softmax = true;  ///< heads are added up after the softmax

  static Rule of(const Params& params) {
    return {params.amount("read"), params.count("channels"),   params.share("local"),
            params.flag("copy"),   params.count("page_bytes"), params.word("scores") == "softmax"};
  }
  std::size_t channels_of(std::size_t dim) const { return std::min(channels, dim); }
  std::size_t local_of(std::size_t count) const {
    return static_cast<std::size_t>(local * static_cast<double>(count));
  }
  std::size_t in_whole_pages(std::size_t bytes) const {
    return page_bytes == 0 ? bytes : (bytes + page_bytes - 1) / page_bytes * page_bytes;
  }
};

/// Where vectors of `dim` numbers of one KV head lie in pages: as many as fit in one, or each in pages of its
/// own.
struct Pages {
  std::size_t vector_bytes, tokens, bytes;

  Pages(const Rule& rule, std::size_t dim)
      : vector_bytes(dim * kNumberBytes),
        tokens(std::max<std::size_t>(1, rule.page_bytes / vector_bytes)),
        bytes(rule.in_whole_pages(vector_bytes)) {}
  std::size_t count(std::size_t stored) const { return (stored + tokens - 1) / tokens; }
  /// What so many of them hold beside `chosen` vectors.
  std::size_t unasked(std::size_t pages, std::size_t chosen) const {
    return pages * bytes - chosen * vector_bytes;
  }
};

class SparqSelector final : public UnitSelector {
 public:
  SparqSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), value_dim_(static_cast<std::size_t>(unit.value_dim)) {}

  void begin(const Prompt& /*prompt*/, const StoredTokens& tokens) override { slots_ = tokens.slots(); }
  void joined(std::size_t /*own_slot*/, std::size_t /*moved_from*/, const StoredTokens& tokens) override {
    slots_ = tokens.slots();
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = rule_.read.of(slots);
    if (count >= slots) return reads.everything(slots);
    const std::size_t channels = rule_.channels_of(dim_);
    for (std::size_t lane = 0; lane < n_lanes_; ++lane) {
      choose_channels(asking.queries, lane, channels);
      score(asking, tokens, lane);
      // The query's own token is read beside the others.
      highest_scores(scores_, count + (asking.own_slot ? 1 : 0), chosen_);
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) reads.of(head) = chosen_;
      reads.index_bits += 8 * channels * rule_.in_whole_pages(slots * kNumberBytes);
      if (rule_.page_bytes > 0)
        reads.index_bits +=
            8 * (unasked(Pages(rule_, dim_), slots) + unasked(Pages(rule_, value_dim_), slots));
    }
  }

  std::uint64_t index_bits() const override {
    return rule_.copy ? 8 * slots_ * n_lanes_ * dim_ * kNumberBytes : 0;
  }

 private:
  /// Those in which the queries of the group are largest together.
  void choose_channels(const MatrixView& queries, std::size_t lane, std::size_t count) {
    sizes_.assign(dim_, 0);
    for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
      for (std::size_t c = 0; c < dim_; ++c) sizes_[c] += std::fabs(queries(head, c));
    highest_scores(sizes_, count, channels_);
    std::sort(channels_.begin(), channels_.end());
  }

  /// Sums over the group; what is read in any case has the largest score of all.
  void score(const Asking& asking, const StoredTokens& tokens, std::size_t lane) {
    const std::size_t slots = tokens.slots();
    factors_.clear();
    for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) {
      const std::span<const float> query = asking.queries.row(head);
      float all = 0, chosen = 0;
      for (const float q : query) all += std::fabs(q);
      for (const std::size_t c : channels_) chosen += std::fabs(query[c]);
      // A query of nothing has equal scores.
      const float temperature = std::sqrt(static_cast<float>(dim_) * chosen / all);
      factors_.push_back(chosen > 0 ? 1 / temperature : 0);
    }
    scores_.assign(slots, 0);
    logits_.resize(slots);
    for (std::size_t g = 0; g < group_; ++g) {
      const std::span<const float> query = asking.queries.row(lane * group_ + g);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        const std::span<const float> key = tokens.key(lane, slot);
        float sum = 0;
        for (const std::size_t c : channels_) sum += query[c] * key[c];
        logits_[slot] = factors_[g] * sum + tokens.bias(lane, slot);
      }
      if (rule_.softmax) take_softmax();
      for (std::size_t slot = 0; slot < slots; ++slot) scores_[slot] += logits_[slot];
    }
    const auto local = static_cast<Position>(rule_.local_of(rule_.read.of(slots)));
    for (std::size_t slot = 0; slot < slots; ++slot)
      if (asking.position - tokens.positions()[slot] <= local)
        scores_[slot] = std::numeric_limits<float>::infinity();
  }

  void take_softmax() {
    const float largest = *std::max_element(logits_.begin(), logits_.end());
    float sum = 0;
    for (float& logit : logits_) sum += logit = std::exp(logit - largest);
    for (float& weight : logits_) weight /= sum;
  }

  /// Bytes that the pages of the chosen tokens hold beside them.
  std::size_t unasked(const Pages& pages, std::size_t slots) {
    touched_.assign(pages.count(slots), 0);
    std::size_t count = 0;
    for (const std::size_t slot : chosen_) count += std::exchange(touched_[slot / pages.tokens], 1) ? 0 : 1;
    return pages.unasked(count, chosen_.size());
  }

  Rule rule_;
  std::size_t value_dim_;
  std::size_t slots_ = 0;
  std::vector<float> sizes_, factors_, logits_, scores_;  // scratch
  std::vector<std::size_t> channels_, chosen_;
  std::vector<char> touched_;
};

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = Rule::of(params);
  const std::size_t count = rule.read.of(stored);
  ReadCount out = dense_reads(count);
  if (rule.copy)
    out.index_bytes = static_cast<double>(stored * shape.kv_heads * shape.head_dim * kNumberBytes);
  if (count >= stored) return out;
  std::size_t bytes = rule.channels_of(shape.head_dim) * rule.in_whole_pages(stored * kNumberBytes);
  // At most: every token in a page of its own.
  if (rule.page_bytes > 0)
    for (const std::size_t dim : {shape.head_dim, shape.value_dim}) {
      const Pages pages(rule, dim);
      bytes += pages.unasked(std::min(pages.count(stored), count + 1), count + 1);
    }
  out.index_bytes_read = static_cast<double>(shape.kv_heads * bytes);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "sparq",
      .summary = "reads the tokens of the highest logits by the few channels in which the query is largest",
      .paper =
          "Ribar, Chelombiev, Hudlass-Galley, Blake, Luschi, Orr, SparQ Attention, ICML 2024, arXiv "
          "2312.04985",
      .details =
          "Of all keys, the 32 channels are read in which the query has the largest magnitudes, those of the "
          "query heads of a KV head added up. Products with these are divided by sqrt(head size * share of "
          "the query's absolute sum that they hold), and the softmax over what is stored is added up over "
          "the heads. All heads of the KV head read the `read` highest tokens and their own; a quarter of "
          "them is the newest. Keys are stored twice, the second time by channel; copy=false stores them "
          "once.",
      .departures =
          {{"authors' code: adds logits of the heads up, before the softmax", "after it; sparq.logits"},
           {"paper: what is not read counts as the mean value, with the weight that its approximate scores "
            "have",
            "not here: a selection names tokens, and attention over them is renormalised"},
           {"InstInfer (arXiv 2409.04992) reads such choices from flash, in whole pages; there is no code",
            "page_bytes= counts what these pages hold beside what was asked for as read of the index; the "
            "tokens that are attended stay the same. Pages of keys, of values and of channels are apart, "
            "each of one KV head and of consecutive slots. What is said of a cost is the most: every token "
            "in a page of its own"}},
      .params = {read_param("128"),
                 count_param("channels", "32", {1, 65536}, "of every key that are read to choose"),
                 share_param("local", "0.25", "of what is read that is the newest tokens, rounded down"),
                 choice_param("scores", "softmax", {"softmax", "logits"},
                              "what is added up over the query heads of a KV head"),
                 flag_param("copy", "true", "keys are stored a second time, by channel"),
                 count_param("page_bytes", "0", {0, 1 << 30},
                             "pages that are read whole; 0: no more is read than asked for", "bytes"),
                 dense_param(0)},
      .needs = {.keys = true},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<SparqSelector>(Rule::of)}};
}

}  // namespace kvsim::policy::sparq
