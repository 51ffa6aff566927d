// The cache eviction of OpenVINO GenAI, block for block, and its KVCrush.
#include <algorithm>
#include <numeric>
#include <random>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/index/fingerprints.hpp"
#include "policies/parts/index/k_means.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::openvino {
namespace {

enum class Anchor { random, zeros, ones, mean, alternate };

/// All sizes except `block`, `window` and `pool_width` are in blocks.
struct Settings {
  explicit Settings(const Params& params)
      : block(params.count("block")),
        start(params.count("start")),
        recent(params.count("recent")),
        representatives(params.count("kvcrush")),
        window(params.count("snapkv_window")),
        pool_width(params.count("pool_width")),
        normalise(params.word("aggregation") == "norm_sum"),
        twister(params.word("draws") == "mt19937"),
        inside(params.flag("inside")) {
    const std::string& from = params.word("anchor");
    anchor = from == "random"  ? Anchor::random
             : from == "zeros" ? Anchor::zeros
             : from == "ones"  ? Anchor::ones
             : from == "mean"  ? Anchor::mean
                               : Anchor::alternate;
  }

  std::size_t most_blocks(std::size_t budget) const {
    return budget / block - (inside ? representatives : 0);
  }
  std::size_t floor() const { return (start + recent + 1 + (inside ? representatives : 0)) * block; }
  std::size_t overshoot() const { return ((inside ? 0 : representatives) + 1) * block; }

  std::size_t block, start, recent, representatives, window, pool_width;
  bool normalise, twister, inside;
  Anchor anchor = Anchor::random;
};

/// Draws the anchors of one layer, one after another.
class AnchorDraws {
 public:
  AnchorDraws(const Settings& set, const CacheUnit& unit)
      : n_bits_(set.block),
        layer_(static_cast<std::size_t>(unit.layer)),
        n_layers_(static_cast<std::size_t>(unit.n_layers)),
        twister_(set.twister),
        shared_(static_cast<std::uint32_t>(unit.seed)),
        key_(combine({unit.seed, key_of("openvino"), static_cast<std::uint64_t>(unit.layer)})) {
    shared_.discard(layer_ * n_bits_);
  }

  Fingerprints::Bits next() {
    const std::uint64_t key = combine({key_, n_drawn_++});
    Fingerprints::Bits out = make_bits(n_bits_, [&](std::size_t bit) {
      return twister_ ? (shared_() >> 31) != 0 : uniform01(combine({key, bit})) < 0.5;
    });
    // One generator serves all layers in turn, so skip the other layers' draws.
    if (twister_) shared_.discard((n_layers_ - 1) * n_bits_);
    return out;
  }

 private:
  std::size_t n_bits_, layer_, n_layers_;
  bool twister_;
  std::mt19937 shared_;
  std::uint64_t key_, n_drawn_ = 0;
};

/// Returns out[i] = max of values[i .. i + width - 1], as far as there are any.
std::vector<double> pooled_ahead(std::span<const double> values, std::size_t width) {
  std::vector<double> out(values.begin(), values.end());
  for (std::size_t ahead = 1; ahead < std::min(width, values.size()); ++ahead)
    for (std::size_t i = 0; i + ahead < values.size(); ++i) out[i] = std::max(out[i], values[i + ahead]);
  return out;
}

/// Scores of a layer's tokens in order of position, without the start area, and the eviction that follows
/// from them.
class BlockLedger {
 public:
  BlockLedger(const Settings& set, const CacheUnit& unit) : set_(set), draws_(set, unit) {}

  void limit(std::size_t most_blocks) { most_blocks_ = most_blocks; }

  /// Adds the attention on every resident token, from `n_rows` queries. Tokens beyond the known ones are new.
  void add(std::span<const double> attention, std::size_t n_rows) {
    length_ = attention.size();
    settled_ = false;
    const std::size_t skipped = std::min(set_.start * set_.block, length_);
    const std::vector<double> seen = pooled_ahead(attention.subspan(skipped), set_.pool_width);
    for (std::size_t& age : ages_) age += n_rows;
    for (std::size_t i = ages_.size(); i < seen.size(); ++i)
      ages_.push_back(std::min(n_rows, seen.size() - i));
    sums_.resize(seen.size());
    for (std::size_t i = 0; i < seen.size(); ++i) sums_[i] += seen[i];
  }

  /// The window leaves the oldest resident token behind: the start area moves on by one.
  void leave_oldest() {
    --length_;
    if (sums_.empty()) return;
    sums_.erase(sums_.begin());
    ages_.erase(ages_.begin());
  }

  /// Returns the blocks to evict now, ascending, numbered from the start of the resident tokens, and removes
  /// them. It neither evicts nor draws anything before another query has been added.
  std::vector<std::size_t> evict() {
    if (settled_ || length_ < (most_blocks_ + 1) * set_.block) return {};
    settled_ = true;
    const std::size_t n_evictable = length_ / set_.block - set_.recent - set_.start;
    const std::size_t n_stay = most_blocks_ - set_.recent - set_.start;
    std::vector<std::uint32_t> leaving = lowest(n_evictable, n_evictable - n_stay);
    if (set_.representatives > 0 && leaving.size() >= set_.representatives)
      spare_representatives(n_evictable, leaving);
    std::vector<std::size_t> out;
    out.reserve(leaving.size());
    for (const std::uint32_t block : leaving) out.push_back(block + set_.start);
    forget(leaving);
    return out;
  }

 private:
  /// First token of an evictable block.
  std::size_t begin(std::uint32_t block) const { return block * set_.block; }

  /// Returns the `count` evictable blocks of lowest score, ascending; of equals the older ones.
  std::vector<std::uint32_t> lowest(std::size_t n_evictable, std::size_t count) const {
    std::vector<double> scores(n_evictable);
    for (std::size_t i = 0; i < n_evictable * set_.block; ++i)
      scores[i / set_.block] += set_.normalise ? sums_[i] / static_cast<double>(ages_[i]) : sums_[i];
    std::vector<std::uint32_t> order = least_first<std::uint32_t>(scores);
    order.resize(count);
    std::sort(order.begin(), order.end());
    return order;
  }

  /// Returns one bit per token of the evictable area: whether its sum, not normalised, is in the upper half.
  Fingerprints fingerprints(std::size_t n_evictable) const {
    const std::vector<std::size_t> order = largest_first(std::span(sums_).first(n_evictable * set_.block));
    Fingerprints out(n_evictable, set_.block);
    for (std::size_t i = 0; i < order.size() / 2; ++i) out.set(order[i] / set_.block, order[i] % set_.block);
    return out;
  }

  Fingerprints::Bits anchor(const Fingerprints& prints, std::size_t n_evictable) {
    if (set_.anchor == Anchor::random) return draws_.next();
    if (set_.anchor == Anchor::mean) {
      std::vector<std::uint32_t> all(n_evictable);
      std::iota(all.begin(), all.end(), 0U);
      return prints.majority(all);
    }
    return make_bits(set_.block, [&](std::size_t bit) {
      return set_.anchor == Anchor::ones || (set_.anchor == Anchor::alternate && bit % 2 == 1);
    });
  }

  void spare_representatives(std::size_t n_evictable, std::vector<std::uint32_t>& leaving) {
    const Fingerprints prints = fingerprints(n_evictable);
    const std::vector<std::uint32_t> spared = picked(
        prints.nearest_first(leaving, anchor(prints, n_evictable)), set_.representatives, Pick::stride);
    std::erase_if(leaving, [&](std::uint32_t block) {
      return std::find(spared.begin(), spared.end(), block) != spared.end();
    });
  }

  void forget(std::span<const std::uint32_t> blocks) {
    const auto close = [&](auto& per_token) {
      std::size_t to = 0;
      for (std::size_t i = 0; i < per_token.size(); ++i)
        if (!std::binary_search(blocks.begin(), blocks.end(), static_cast<std::uint32_t>(i / set_.block)))
          per_token[to++] = per_token[i];
      per_token.resize(to);
    };
    if (blocks.empty()) return;
    close(sums_);
    close(ages_);
    length_ -= blocks.size() * set_.block;
  }

  Settings set_;
  AnchorDraws draws_;
  std::size_t most_blocks_ = 0;
  bool settled_ = false;           ///< no query since the last eviction
  std::size_t length_ = 0;         ///< resident tokens
  std::vector<double> sums_;       ///< per token behind the start area
  std::vector<std::size_t> ages_;  ///< queries that saw it
};

class OpenVinoDecoder final : public Decoder {
 public:
  OpenVinoDecoder(std::size_t block, BlockLedger ledger, std::size_t n_slots)
      : block_(block), ledger_(std::move(ledger)), slots_by_age_(n_slots) {
    std::iota(slots_by_age_.begin(), slots_by_age_.end(), std::size_t{0});
  }

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (arrival.leaving) {
      ledger_.leave_oldest();
      victims.push_back(*arrival.leaving);
      slots_by_age_.erase(slots_by_age_.begin());
    }
    const std::vector<std::size_t> blocks = ledger_.evict();
    for (const std::size_t block : blocks)
      for (std::size_t i = block * block_; i < (block + 1) * block_; ++i) victims.push_back(slots_by_age_[i]);
    if (!blocks.empty()) slots_by_age_.clear();
  }

  /// All that is left leaves where a chunk of attention begins.
  void close_slots(std::span<const std::size_t> victims) override {
    for (std::size_t i = 1; i < victims.size(); ++i) ledger_.leave_oldest();
    slots_by_age_.clear();
  }

  void observe(const Step& step) override {
    if (slots_by_age_.empty()) {
      slots_by_age_ = least_first(step.slots);
    } else {
      slots_by_age_.push_back(step.own_slot);
    }
    by_slot_.assign(step.slots.size(), 0.0);
    add_attention(step, Feedback::renorm, Group::mean, 1, by_slot_);
    by_age_.resize(by_slot_.size());
    for (std::size_t i = 0; i < by_age_.size(); ++i) by_age_[i] = by_slot_[slots_by_age_[i]];
    ledger_.add(by_age_, 1);
  }

 private:
  std::size_t block_;
  BlockLedger ledger_;
  std::vector<std::size_t> slots_by_age_;  ///< slots in order of position
  std::vector<double> by_slot_, by_age_;
};

class OpenVino final : public Eviction {
 public:
  OpenVino(const Settings& set, const CacheUnit& unit)
      : set_(set),
        rows_(set.window == 0 ? kAllRows : set.window),
        sums_(unit.n_query_heads(), rows_),
        ledger_(set, unit) {}

  std::size_t prompt_rows() const override { return rows_; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override { return rows_ == kAllRows ? 0 : rows_; }
  void observe_columns(const PromptColumns& columns) override {
    if (rows_ == kAllRows) sums_.take(columns.query_head, columns.sum);
  }
  void finish_prompt(const Prompt& prompt) override {
    length_ = prompt.length();
    ledger_.add(sums_.mean(), std::min(rows_, length_));
  }

  Start start(std::size_t budget) const override {
    BlockLedger ledger = ledger_;
    ledger.limit(set_.most_blocks(budget));
    const std::vector<std::size_t> leaving = ledger.evict();
    Start out;
    for (std::size_t j = 0; j < length_; ++j)
      if (!std::binary_search(leaving.begin(), leaving.end(), j / set_.block))
        out.keep.push_back(static_cast<Position>(j));
    out.decoder = std::make_unique<OpenVinoDecoder>(set_.block, std::move(ledger), out.keep.size());
    return out;
  }
  /// Protects the start area, the recent area, and the tokens of a block that the prompt does not fill.
  Protection protection(std::size_t /*budget*/, std::size_t prompt) const override {
    return {set_.start * set_.block, set_.recent * set_.block + prompt % set_.block};
  }

 private:
  Settings set_;
  std::size_t rows_;
  ColumnSums sums_;
  BlockLedger ledger_;
  std::size_t length_ = 0;
};

/// Counts sums, and with norm_sum their counts, of the layer's tokens, which lie in order and need no
/// positions. Every step pools a vector of attention ahead; when a block fills, blocks are compared, and with
/// KVCrush a bit per token with the anchor.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Settings set(params);
  const std::uint64_t state = kScoreBytes * (set.normalise ? 2 : 1);
  const Work pooled{.ops = real(set.pool_width), .bytes = 2 * real(state)};
  Work compared{.ops = 2, .bytes = real(state)};
  if (set.representatives > 0) compared = compared + Work{.ops = 2, .bytes = 1.0 / 8};
  Cost out = window_cost(shape, set.window == 0 ? kAllRows : set.window, "none");
  out.prompt = out.prompt + real(shape.prompt) * (pooled + compared) + Work{.launches = 2};
  out.metadata.layer_slot = state;
  out.decode_rows = true;
  // Blocks are evicted through the page table, so nothing moves.
  out.step.launches = 1 + 2 / real(set.block);
  out.step_slot = Work{.ops = real(shape.query_heads)} + pooled + 1 / real(set.block) * compared;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "openvino",
      .summary =
          "OpenVINO GenAI's cache eviction: whole blocks leave by accumulated attention, with its KVCrush",
      .paper =
          "OpenVINO GenAI, cache_eviction.cpp and kvcrush.cpp, https://github.com/openvinotoolkit/"
          "openvino.genai; KVCrush: Jha, Gobriel, Talamanova, Jain, arXiv 2025, "
          "https://arxiv.org/abs/2503.00022",
      .details =
          "One set per layer. max_cache_size is the budget, rounded down to whole blocks; blocks leave when "
          "max_cache_size + block tokens are held, so a layer rests at max_cache_size and up to block - 1 "
          "tokens more. Attention on each token behind the start area, averaged over heads, is max-pooled "
          "over the next pool_width tokens and added up, from the last snapkv_window prompt rows on; "
          "norm_sum divides by the number of queries that saw the token. A block's score is the sum of its "
          "tokens', the lowest leave, of equals the older. With kvcrush blocks, when as many leave at least: "
          "one bit per token, is its plain sum in the upper half of the evictable area (of equals the older "
          "is)? Leaving blocks are sorted by distance to the anchor (of equals the older first), and every "
          "floor(F / kvcrush)-th stays after all. Cache rotation decides nothing; Adaptive R-KV is another "
          "policy.",
      .departures = {{"OpenVINO: sizes in tokens, multiples of the block",
                      "start, recent, kvcrush in blocks"},
                     {"OpenVINO: ties among bits and distances follow the sorting routine",
                      "the older first"},
                     {"OpenVINO: prefill chunks are pooled one by one", "the prompt is one chunk"},
                     {"OpenVINO: KVCrush blocks come on top of the budget",
                      "the same, so compare at equal resting tokens; inside=true"}},
      .params = {count_param("block", "32", {1, 1 << 20}, "32 on CPU, 16 on GPU, 256 there with XAttention",
                             "tokens"),
                 count_param("start", "1", {1, 1 << 20}, "first blocks, never evicted", "blocks"),
                 count_param("recent", "4", {1, 1 << 20},
                             "last full blocks, not evicted while among the last", "blocks"),
                 choice_param("aggregation", "norm_sum", {"norm_sum", "sum"},
                              "whether a token's attention is divided by the number of queries that saw it"),
                 count_param("snapkv_window", "8", {0, 1 << 20},
                             "last prompt rows that count; 0: all of them", "rows"),
                 count_param("pool_width", "7", {1, 1 << 20},
                             "a token counts as the strongest of so many from it on", "tokens"),
                 count_param("kvcrush", "0", {0, 1 << 20},
                             "representatives of the blocks that leave; 0: none", "blocks"),
                 choice_param("anchor", "random", {"random", "zeros", "ones", "mean", "alternate"},
                              "the fingerprint that distances are measured from"),
                 choice_param(
                     "draws", "mt19937", {"mt19937", "counter"},
                     "random anchors: top bits of one generator that all layers share, as released, or each "
                     "layer's own"),
                 flag_param("inside", "false", "KVCrush's blocks count towards the budget")},
      .needs = {.prompt_rows = RowNeed::window, .decode_rows = true},
      .needs_of =
          [](const Params& params) {
            const bool every_row = params.count("snapkv_window") == 0;
            return Needs{.prompt_rows = every_row ? RowNeed::all : RowNeed::window, .decode_rows = true};
          },
      .randomised = true,
      .layer_unit = [](const Params&) { return true; },
      .cost = cost_of,
      .rule = EvictionRule{.floor = [](const Params& params) { return Settings(params).floor(); },
                           .overshoot = [](const Params& params) { return Settings(params).overshoot(); },
                           .make = made<OpenVino, Settings>}};
}

}  // namespace kvsim::policy::openvino
