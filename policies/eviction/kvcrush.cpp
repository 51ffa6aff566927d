// Spends part of the budget on important tokens and the rest on representatives of the others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "policies/api/over_base.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/index/fingerprints.hpp"
#include "policies/parts/index/k_means.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::kvcrush {
namespace {

// A scored policy head by head, inside a layer whose heads share one resident set.

/// A layer's prompt as one of its heads sees it.
class HeadPrompt final : public Prompt {
 public:
  HeadPrompt(const Prompt& layer, int lane, int first_query_head)
      : layer_(layer), lane_(lane), first_query_head_(first_query_head) {}
  std::size_t length() const override { return layer_.length(); }
  std::size_t first() const override { return layer_.first(); }
  MatrixView keys(int lane) const override { return layer_.keys(lane_ + lane); }
  MatrixView values(int lane) const override { return layer_.values(lane_ + lane); }
  MatrixView queries(int head) const override { return layer_.queries(first_query_head_ + head); }
  Rotary rotary() const override { return layer_.rotary(); }
  double scale() const override { return layer_.scale(); }
  double cap() const override { return layer_.cap(); }
  float sink(int head) const override { return layer_.sink(first_query_head_ + head); }
  std::span<const std::uint8_t> classes() const override { return layer_.classes(); }
  std::span<const float> surprises() const override { return layer_.surprises(); }
  MatrixView output_weights(int head) const override {
    return layer_.output_weights(first_query_head_ + head);
  }

 private:
  const Prompt& layer_;
  int lane_, first_query_head_;
};

MatrixView only_row(const MatrixView& all, std::size_t row) {
  return all.data ? MatrixView{all.data + row * all.stride, 1, all.cols, all.stride} : all;
}

/// Calls look(head, view) with the part of `whole` that each head sees; narrow(view, g) keeps query head g of
/// a lane.
template <class View, class Narrow, class Look>
void for_heads(const View& whole, std::size_t n_heads, std::size_t group, bool per_query_head, Narrow narrow,
               Look look) {
  for (std::size_t head = 0; head < n_heads; ++head) {
    if (!per_query_head) {
      look(head, whole.of_lane(head, group));
      continue;
    }
    View one = whole.of_lane(head / group, group);
    narrow(one, head % group);
    look(head, one);
  }
}

/// The mean of their scores.
template <class Heads>
void mean_of_heads(const Heads& heads, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (const auto& head : heads) {
    const std::span<const double> scores = head->scores();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += scores[i];
  }
  for (double& score : out) score /= static_cast<double>(heads.size());
}

/// Decoders of all heads over the layer's slots. They only score: their own evict() is not called.
class HeadDecoders {
 public:
  HeadDecoders(std::vector<std::unique_ptr<Decoder>> heads, std::size_t group, bool per_query_head)
      : heads_(std::move(heads)), group_(group), per_query_head_(per_query_head) {}

  void rescore(const Arrival& arrival) {
    for_heads(
        arrival, heads_.size(), group_, per_query_head_,
        [](Arrival& one, std::size_t g) { one.queries = only_row(one.queries, g); },
        [&](std::size_t head, const Arrival& one) { heads_[head]->rescore(one); });
  }
  void close_slots(std::span<const std::size_t> victims) {
    for (const auto& head : heads_) head->close_slots(victims);
  }
  void observe(const Step& step) {
    for_steps(step, [](Decoder& head, const Step& one) { head.observe(one); });
  }
  void renew(const Step& step) {
    for_steps(step, [](Decoder& head, const Step& one) { policy::renew(head, one); });
  }
  /// One per slot.
  void mean_scores(std::span<double> out) const { mean_of_heads(heads_, out); }

 private:
  /// Calls look(decoder, step) with what each head sees of the step.
  template <class Look>
  void for_steps(const Step& step, Look look) {
    for_heads(
        step, heads_.size(), group_, per_query_head_,
        [](Step& one, std::size_t g) {
          one.attention = only_row(one.attention, g);
          one.queries = only_row(one.queries, g);
          if (!one.mass.empty()) one.mass = one.mass.subspan(g, 1);
        },
        [&](std::size_t head, const Step& one) { look(*heads_[head], one); });
  }

  std::vector<std::unique_ptr<Decoder>> heads_;
  std::size_t group_;
  bool per_query_head_;
};

/// One object of the base policy per KV head, or per query head.
class HeadBases {
 public:
  HeadBases(const Part& base, const CacheUnit& layer, bool per_query_head)
      : group_(static_cast<std::size_t>(layer.group)), per_query_head_(per_query_head) {
    for (int lane = 0; lane < layer.n_lanes; ++lane) {
      CacheUnit unit = layer.lane(lane);
      if (per_query_head) unit.group = 1;
      for (int g = 0; g < layer.group / unit.group; ++g) heads_.push_back(base.make_eviction(unit));
    }
  }

  std::size_t size() const { return heads_.size(); }
  const Eviction& operator[](std::size_t head) const { return *heads_[head]; }
  std::size_t prompt_rows() const { return heads_[0]->prompt_rows(); }
  std::size_t rows_beside_columns() const { return heads_[0]->rows_beside_columns(); }
  void observe(PromptRows rows) { owner(rows.query_head).observe(rows); }
  void observe_columns(PromptColumns columns) { owner(columns.query_head).observe_columns(columns); }
  void finish_prompt(const Prompt& prompt) {
    const std::size_t query_heads = per_query_head_ ? 1 : group_;
    for (std::size_t head = 0; head < heads_.size(); ++head) {
      const std::size_t first = head * query_heads;
      heads_[head]->finish_prompt(
          HeadPrompt(prompt, static_cast<int>(first / group_), static_cast<int>(first)));
    }
  }
  /// One per prompt position.
  std::vector<double> mean_scores() const {
    std::vector<double> out(heads_[0]->scores().size());
    mean_of_heads(heads_, out);
    return out;
  }
  /// Returns null if the base does not decode.
  std::unique_ptr<HeadDecoders> decoders(std::size_t budget, std::span<const Position> slots) const {
    std::vector<std::unique_ptr<Decoder>> out;
    for (const auto& head : heads_)
      if (auto decoder = head->decoder(budget, slots)) out.push_back(std::move(decoder));
    if (out.empty()) return nullptr;
    return std::make_unique<HeadDecoders>(std::move(out), group_, per_query_head_);
  }

 private:
  /// Returns the head that a query head of the layer belongs to, and makes its index that among the head's
  /// own query heads.
  Eviction& owner(int& query_head) {
    const auto of_layer = static_cast<std::size_t>(query_head);
    query_head = per_query_head_ ? 0 : static_cast<int>(of_layer % group_);
    return *heads_[per_query_head_ ? of_layer : of_layer / group_];
  }

  std::size_t group_;
  bool per_query_head_;
  std::vector<std::unique_ptr<Eviction>> heads_;
};

enum class Cluster { anchor, kmeans_keys, kmeans_bits };
enum class Anchor { random, mean, alternate, zeros, ones };

struct Settings {
  explicit Settings(const Params& params)
      : base(params.part("base")),
        share(params.real("share")),
        granularity(params.count("granularity")),
        per_query_head(params.word("bits") == "query_head"),
        at_budget(params.word("threshold") == "budget"),
        decodes(params.word("decode") == "base"),
        tenure(params.flag("tenure")) {
    const std::string &how = params.word("cluster"), &from = params.word("anchor"),
                      &taken = params.word("pick");
    cluster = how == "anchor"        ? Cluster::anchor
              : how == "kmeans_keys" ? Cluster::kmeans_keys
                                     : Cluster::kmeans_bits;
    anchor = from == "random"      ? Anchor::random
             : from == "mean"      ? Anchor::mean
             : from == "alternate" ? Anchor::alternate
             : from == "zeros"     ? Anchor::zeros
                                   : Anchor::ones;
    pick = taken == "random" ? Pick::random : taken == "first" ? Pick::first : Pick::ends;
  }

  Part base;
  double share;
  std::size_t granularity;
  bool per_query_head, at_budget, decodes, tenure;
  Cluster cluster = Cluster::anchor;
  Anchor anchor = Anchor::random;
  Pick pick = Pick::random;
};

/// Evicts the slot that the heads' bases score lowest on average; representatives are evicted last.
class KvCrushDecoder final : public ScoredDecoder, public Renewing {
 public:
  KvCrushDecoder(const KeepRule& selection, std::unique_ptr<HeadDecoders> heads, std::vector<char> tenured)
      : ScoredDecoder(selection, std::vector<double>(tenured.size())),
        heads_(std::move(heads)),
        tenured_(std::move(tenured)) {}

  void rescore(const Arrival& arrival) override {
    heads_->rescore(arrival);
    heads_->mean_scores(scores());
    for (std::size_t slot = 0; slot < tenured_.size(); ++slot)
      if (tenured_[slot]) scores()[slot] = std::numeric_limits<double>::infinity();
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    heads_->close_slots(victims);
    close_up(tenured_, victims);
  }

  void observe(const Step& step) override {
    admit(step, 0);
    tenured_.resize(step.slots.size());
    tenured_[step.own_slot] = 0;
    heads_->observe(step);
  }
  void renew(const Step& step) override { heads_->renew(step); }

 private:
  std::unique_ptr<HeadDecoders> heads_;
  std::vector<char> tenured_;  ///< per slot
};

class KvCrush final : public Eviction {
 public:
  KvCrush(const Settings& settings, const KeepRule& selection, const CacheUnit& unit)
      : set_(settings),
        key_(combine({unit.seed, key_of("kvcrush"), static_cast<std::uint64_t>(unit.layer)})),
        n_lanes_(unit.n_lanes),
        bases_(settings.base, unit, settings.per_query_head),
        selection_(selection) {}

  std::size_t prompt_rows() const override { return bases_.prompt_rows(); }
  void observe(const PromptRows& rows) override { bases_.observe(rows); }
  std::size_t rows_beside_columns() const override { return bases_.rows_beside_columns(); }
  void observe_columns(const PromptColumns& columns) override { bases_.observe_columns(columns); }

  void finish_prompt(const Prompt& prompt) override {
    bases_.finish_prompt(prompt);
    length_ = prompt.length();
    blocks_ = {length_, set_.granularity, prompt.first()};
    order_ = BlockOrder(bases_.mean_scores(), set_.granularity, selection_.tie, prompt.first());
    if (set_.cluster == Cluster::kmeans_keys) average_keys(prompt);
  }

  Start start(std::size_t budget) const override {
    const Protection guard = protection(budget, length_);
    std::vector<char> represents(blocks_.count());
    Start out;
    out.keep = choose(budget, guard, represents);
    if (!set_.decodes) return out;
    auto heads = bases_.decoders(budget, out.keep);
    if (!heads) return out;
    std::vector<char> tenured(out.keep.size());
    for (std::size_t slot = 0; slot < tenured.size(); ++slot)
      tenured[slot] = set_.tenure && represents[block_of(out.keep[slot])];
    KeepRule selection = selection_;
    selection.protection = guard;
    out.decoder = std::make_unique<KvCrushDecoder>(selection, std::move(heads), std::move(tenured));
    return out;
  }

  /// Returns the base's protection, with its window cut so that it covers whole blocks that fit.
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    Protection out = bases_[0].protection(importance_budget(budget), prompt);
    const std::size_t g = set_.granularity, sinks = (out.sinks + g - 1) / g * g;
    out.window = std::min(out.window, budget - std::min(budget, sinks + g - 1));
    return out;
  }

 private:
  std::size_t block_of(Position row) const { return blocks_.of(static_cast<std::size_t>(row)); }
  std::size_t importance_budget(std::size_t budget) const {
    return budget - static_cast<std::size_t>(set_.share * static_cast<double>(budget));
  }

  /// Returns rows of the prompt, ascending. Marks the blocks that are kept as representatives.
  std::vector<Position> choose(std::size_t budget, const Protection& guard,
                               std::vector<char>& represents) const {
    const std::size_t important = std::max(importance_budget(budget), order_.protected_tokens(guard));
    std::vector<Position> keep = order_.best(budget >= length_ ? budget : important, guard);
    std::vector<char> kept(blocks_.count());
    for (const Position position : keep) kept[block_of(position)] = 1;
    std::vector<std::uint32_t> candidates;
    std::size_t left_over = 0;
    for (std::size_t b = 0; b < kept.size(); ++b) {
      if (kept[b]) continue;
      candidates.push_back(static_cast<std::uint32_t>(b));
      left_over += blocks_.size(b);
    }
    const std::size_t room = std::min(budget, length_) - keep.size();
    const std::size_t count = std::min(candidates.size(), room / set_.granularity);
    if (left_over > room) candidates = representatives(candidates, count, budget, guard);
    for (const std::uint32_t b : candidates) {
      represents[b] = 1;
      for (std::size_t row = blocks_.begin(b); row < blocks_.end(b); ++row)
        keep.push_back(static_cast<Position>(row));
    }
    std::sort(keep.begin(), keep.end());
    return keep;
  }

  std::vector<std::uint32_t> representatives(const std::vector<std::uint32_t>& candidates, std::size_t count,
                                             std::size_t budget, const Protection& guard) const {
    if (count == 0) return {};
    if (set_.cluster == Cluster::kmeans_keys) {
      const std::size_t dim = block_keys_.size() / blocks_.count();
      return nearest_to_centres(candidates, count, dim, [&](std::uint32_t block, std::size_t d) {
        return block_keys_[block * dim + d];
      });
    }
    const Fingerprints prints = fingerprints(budget);
    if (set_.cluster == Cluster::kmeans_bits)
      return nearest_to_centres(
          candidates, count, prints.n_bits(),
          [&](std::uint32_t block, std::size_t bit) { return prints.get(block, bit) ? 1.0F : 0.0F; });
    return picked(prints.nearest_first(candidates, anchor(prints, guard)), count, set_.pick,
                  combine({key_, key_of("pick")}));
  }

  /// Returns one bit per token of the block and head, token after token: whether the head's own base keeps
  /// the token. A last block that is not full is padded with zeros.
  Fingerprints fingerprints(std::size_t budget) const {
    const std::size_t asked = set_.at_budget ? budget : std::max(length_ / 2, set_.base.floor());
    Fingerprints out(blocks_.count(), set_.granularity * bases_.size());
    for (std::size_t head = 0; head < bases_.size(); ++head)
      for (const Position row : bases_[head].start(asked).keep)
        out.set(block_of(row),
                (blocks_.first + static_cast<std::size_t>(row)) % set_.granularity * bases_.size() + head);
    return out;
  }

  Fingerprints::Bits anchor(const Fingerprints& prints, const Protection& guard) const {
    if (set_.anchor == Anchor::mean) {
      const std::vector<char> stays = order_.protected_blocks(guard);
      std::vector<std::uint32_t> free;
      for (std::size_t b = 0; b < stays.size(); ++b)
        if (!stays[b]) free.push_back(static_cast<std::uint32_t>(b));
      return prints.majority(free);
    }
    const std::uint64_t key = combine({key_, key_of("anchor")});
    return make_bits(prints.n_bits(), [&](std::size_t bit) {
      if (set_.anchor == Anchor::random) return uniform01(combine({key, bit})) < 0.5;
      return set_.anchor == Anchor::ones || (set_.anchor == Anchor::alternate && bit % 2 == 1);
    });
  }

  template <class At>
  std::vector<std::uint32_t> nearest_to_centres(const std::vector<std::uint32_t>& candidates,
                                                std::size_t count, std::size_t dim, At at) const {
    std::vector<float> points(candidates.size() * dim);
    for (std::size_t i = 0; i < candidates.size(); ++i)
      for (std::size_t d = 0; d < dim; ++d) points[i * dim + d] = at(candidates[i], d);
    std::vector<std::uint32_t> out =
        k_means({points.data(), candidates.size(), dim, dim}, count, combine({key_, key_of("k_means")}))
            .representatives;
    for (std::uint32_t& item : out) item = candidates[item];
    return out;
  }

  /// Averages the keys of each block's tokens, KV heads one after another.
  void average_keys(const Prompt& prompt) {
    std::size_t dim = 0;
    for (int lane = 0; lane < n_lanes_; ++lane) dim += prompt.keys(lane).cols;
    block_keys_.assign(blocks_.count() * dim, 0.0F);
    std::size_t first = 0;
    for (int lane = 0; lane < n_lanes_; ++lane) {
      const MatrixView keys = prompt.keys(lane);
      for (std::size_t j = 0; j < length_; ++j)
        for (std::size_t d = 0; d < keys.cols; ++d)
          block_keys_[blocks_.of(j) * dim + first + d] +=
              keys(j, d) / static_cast<float>(blocks_.size(blocks_.of(j)));
      first += keys.cols;
    }
  }

  Settings set_;
  std::uint64_t key_;
  int n_lanes_;
  HeadBases bases_;
  KeepRule selection_;
  std::size_t length_ = 0;
  PromptBlocks blocks_;
  BlockOrder order_;
  std::vector<float> block_keys_;  ///< kmeans_keys: [blocks, n_lanes * head_dim]
};

Needs needs_of(const Params& params) {
  Needs out = params.part("base").needs();
  if (params.word("decode") == "append") out.decode_rows = false;
  out.keys = out.keys || params.word("cluster") == "kmeans_keys";
  return out;
}

void check(const Params& params) {
  const Part& base = params.part("base");
  if (base.params.has("granularity") && base.params.count("granularity") != 1)
    usage_error("the base of kvcrush ranks tokens", "base=" + base.text(),
                "Blocks are kvcrush's: kvcrush(base=" + base.spec->name + ",granularity=...)");
  refuse_streaming("kvcrush", base);
}

/// Fingerprints take one comparison with a threshold per token and head, distances an exclusive-or and a
/// population count per word, groups one pass over the distances. (k-means: a difference, a product and a sum
/// per component, point, centre and round.)
Work grouping_work(const Settings& set, const CostShape& shape) {
  const double heads = real(set.per_query_head ? shape.query_heads : shape.kv_heads),
               bits = heads * real(set.granularity), verdicts = heads * real(shape.prompt);
  const double blocks = std::ceil(real(shape.prompt) / real(set.granularity)),
               words = blocks * std::ceil(bits / 64);
  const Work marked{.ops = verdicts, .bytes = verdicts * (kScoreBytes + 1.0 / 8), .launches = 1};
  if (set.cluster == Cluster::anchor)
    return marked + Work{.ops = 2 * words + blocks, .bytes = 8 * words, .launches = 2};
  const double centres = std::floor(set.share * real(shape.budget)) / real(set.granularity);
  const double points = blocks - (real(shape.budget) / real(set.granularity) - centres);
  const bool on_keys = set.cluster == Cluster::kmeans_keys;
  const double size = on_keys ? real(shape.kv_heads * shape.head_dim) : bits,
               bytes = on_keys ? size * real(shape.element_bytes) : size / 8;
  return marked + real(kMostRounds) *
                      Work{.flops = 3 * points * centres * size, .bytes = points * bytes, .launches = 2};
}

/// Counts the base's cost per head on one set of slots, where a slot's position is stored once.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Settings set(params);
  const std::size_t heads = set.per_query_head ? shape.query_heads : shape.kv_heads;
  Cost out = per_lane(set.base).cost(shape);
  if (out.appends || !set.decodes) {
    out = prompt_only(out);
  } else {
    const std::uint64_t scores = out.metadata.lane_slot - position_bytes(set.base.params);
    out.metadata.lane_slot = scores * (heads / shape.kv_heads);
    out.metadata.layer_slot = kPositionBytes + (set.tenure ? 1 : 0);
  }
  if (shape.prompt <= shape.budget) return out;
  out.scratch_bytes += whole_bytes(real(shape.prompt) * real(heads) / 8);
  out.prompt = out.prompt + sorted(shape, {false, real(heads - shape.kv_heads)}) + sorted(shape, {true, 1}) +
               grouping_work(set, shape);
  return out;
}

std::unique_ptr<Eviction> make(const Params& params, const CacheUnit& unit) {
  return std::make_unique<KvCrush>(Settings(params), KeepRule::of(params), unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "kvcrush",
      .summary =
          "keeps what a base policy ranks highest, and representatives of the rest, found by comparing one "
          "bit per head",
      .paper =
          "Jha, Gobriel, Talamanova, Jain, KVCrush: Key Value Cache Size-Reduction Using Similarity in "
          "Head-Behaviour, arXiv 2025, https://arxiv.org/abs/2503.00022",
      .details =
          "One set per layer. The base's score, averaged over heads, fills B - floor(share * B) tokens; its "
          "protection under so many holds (a recent share is one of what representatives leave), what else "
          "it may keep does not. A token's fingerprint has one bit per query head (bits=kv_head: per KV "
          "head): would the head's own base keep it, at budget B (threshold=budget) or at half of the prompt "
          "(median)? A block's fingerprint is those of its tokens behind each other. The blocks that are "
          "left are sorted by Hamming distance to the anchor (the older of equals first) and cut into as "
          "many groups as fit the rest of the budget, group i = [floor(i F / m), floor((i + 1) F / m)), and "
          "one of each stays. anchor=mean is the majority over all blocks that are not protected, exactly "
          "half giving 0. decode=base: the lowest of the bases' scores is evicted; representatives are "
          "evicted last (tenure=true). Part of a page that the prompt does not fill counts as zeros.",
      .departures =
          {{"paper: distances to one anchor give fewer buckets than representatives, and a bucket's bounds "
            "are not said",
            "sorted by distance, cut into near-equal groups"},
           {"paper: decoding is not described", "the base goes on; decode=append only appends"},
           {"vLLM port: one bit per KV head, of the mean over its query heads",
            "one bit per query head, which the paper counts with grouped queries too; kvcrush.kv_heads"},
           {"OpenVINO: head-summed scores, half of the bits set, representatives on top of the budget",
            "policy openvino"},
           {"vLLM port: top half of every head's tokens, evenly spaced places of the sorted list",
            "threshold=median,pick=ends"}},
      .params =
          {policy_param("base", "h2o", "what ranks tokens, head by head"),
           real_param("share", "0.25", {0, 1}, "what goes to representatives", "share of the budget"),
           choice_param("anchor", "random", {"random", "mean", "alternate", "zeros", "ones"},
                        "the fingerprint that distances are measured from"),
           granularity_param(),
           choice_param("bits", "query_head", {"query_head", "kv_head"},
                        "whose verdicts make the fingerprint"),
           choice_param("threshold", "budget", {"budget", "median"},
                        "at which budget a head's verdict is asked: the one there is, or half of the prompt"),
           choice_param("pick", "random", {"random", "first", "ends"},
                        "which of the sorted blocks stay: a random or the first one of each group, or evenly "
                        "spaced ones with both ends"),
           choice_param("cluster", "anchor", {"anchor", "kmeans_keys", "kmeans_bits"},
                        "how blocks are grouped: by distance to the anchor, or by k-means on keys or on "
                        "fingerprints (the member nearest to its centre stays)"),
           choice_param("decode", "base", {"base", "append"},
                        "whether generated tokens compete under the base's scores or are only appended"),
           flag_param("tenure", "true", "representatives do not compete while decoding")},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},  // with the default base
      .needs_of = needs_of,
      .randomised = true,
      .layer_unit = [](const Params&) { return true; },
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.floor =
                               [](const Params& params) {
                                 return params.part("base").floor() + 2 * (params.count("granularity") - 1);
                               },
                           .overshoot = [](const Params& params) { return params.part("base").overshoot(); },
                           .make = make}};
}

}  // namespace kvsim::policy::kvcrush
