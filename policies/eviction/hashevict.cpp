// Evicts the token whose hash is farthest from the query's.
#include <cmath>
#include <memory>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/index/fingerprints.hpp"
#include "policies/parts/rows/recency.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::hashevict {
namespace {

enum class Source { query, mean_query, key };

SimHash projection_of(const Params& params, const CacheUnit& unit) {
  const auto layer = static_cast<std::uint64_t>(unit.layer);
  const auto head = static_cast<std::uint64_t>(unit.first_kv_head);
  return {params.count("bits"), static_cast<std::size_t>(unit.head_dim),
          params.word("projection") == "head" ? combine({unit.seed, key_of("hashevict"), layer, head})
                                              : combine({unit.seed, key_of("hashevict"), layer})};
}

Source source_of(const Params& params) {
  if (params.word("hash") == "key") return Source::key;
  return params.word("group") == "mean_query" ? Source::mean_query : Source::query;
}

/// What all cells of a unit share.
struct Rule {
  SimHash hash;
  Source source;
  Group group;
  Protection protection;
  Tie tie;

  Rule(SimHash projection, const Params& params)
      : hash(std::move(projection)),
        source(source_of(params)),
        group(params.word("group") == "max" ? Group::max : Group::mean),
        protection(KeepRule::of(params).protection),
        tie(KeepRule::of(params).tie) {}
};

class HashEvictDecoder final : public Decoder, public Renewing {
 public:
  /// `codes`: of the keys kept from the prompt, per slot.
  HashEvictDecoder(std::shared_ptr<const Rule> rule, std::vector<std::uint64_t> codes)
      : rule_(std::move(rule)), codes_(std::move(codes)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    hash_query(arrival);
    const Position first_of_window = arrival.position + 1 - static_cast<Position>(rule_->protection.window);
    victims.push_back(farthest(codes_, arrival.slots, {query_, rule_->group},
                               {static_cast<Position>(rule_->protection.sinks), first_of_window},
                               rule_->tie));
  }

  void observe(const Step& step) override {
    codes_.resize(step.slots.size());
    codes_[step.own_slot] = rule_->hash(step.keys.row(0));
  }
  void renew(const Step& step) override { observe(step); }

 private:
  void hash_query(const Arrival& arrival) {
    query_.clear();
    if (rule_->source == Source::key) {
      query_.push_back(rule_->hash(arrival.keys.row(0)));
    } else if (rule_->source == Source::query) {
      for (std::size_t head = 0; head < arrival.queries.rows; ++head)
        query_.push_back(rule_->hash(arrival.queries.row(head)));
    } else {
      sum_.assign(arrival.queries.cols, 0.0F);  // has the same signs as the mean, hence the same hash
      for (std::size_t head = 0; head < arrival.queries.rows; ++head)
        for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += arrival.queries(head, c);
      query_.push_back(rule_->hash(sum_));
    }
  }

  std::shared_ptr<const Rule> rule_;
  std::vector<std::uint64_t> codes_, query_;
  std::vector<float> sum_;
};

class HashEvict final : public Eviction {
 public:
  HashEvict(const Params& params, const CacheUnit& unit)
      : rule_(std::make_shared<Rule>(projection_of(params, unit), params)),
        streams_(KeepRule::of(params).stream),
        recency_(rule_->protection.sinks) {}

  bool streams_prompt() const override { return streams_; }

  void finish_prompt(const Prompt& prompt) override {
    recency_.finish_prompt(prompt);
    const MatrixView keys = prompt.keys(0);
    for (std::size_t position = 0; position < prompt.length(); ++position)
      codes_.push_back(rule_->hash(keys.row(position)));
  }

  Start start(std::size_t budget) const override {
    Start out;
    if (!streams_) out.keep = recency_.start(budget).keep;
    out.decoder = std::make_unique<HashEvictDecoder>(rule_, at_positions(codes_, out.keep));
    return out;
  }
  Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const override {
    return rule_->protection;
  }

 private:
  const std::shared_ptr<const Rule> rule_;
  const bool streams_;
  Recency recency_;
  std::vector<std::uint64_t> codes_;  ///< per prompt position
};

Needs needs_of_hashevict(const Params& params) {
  return {.keys = true, .queries = source_of(params) != Source::key};
}

/// Codes are packed. A token that arrives at a full cache is hashed (its key is hashed in any case when it
/// joins) and compared with every code: an exclusive-or and a population count per word.
Cost cost_of(const Params& params, const CostShape& shape) {
  const std::size_t bits = params.count("bits");
  const Source source = source_of(params);
  const std::size_t compared = source == Source::query ? shape.query_heads : shape.kv_heads;
  Scoring scoring;
  scoring.state = (bits + 7) / 8;
  scoring.token = projected_keys(shape, 1, bits);
  if (source != Source::key) scoring.token = scoring.token + projected_queries(shape, compared, bits);
  scoring.slot.ops = 2 * real(compared) * std::ceil(real(bits) / 64);
  Cost out = scored_cost(params, shape, scoring);
  if (!out.streams) {
    out.scratch_bytes = 0;
    out.prompt = projected_keys(shape, shape.prompt, bits) + recency_cost(shape).prompt;
  }
  const std::uint64_t projection = bits * shape.head_dim * shape.element_bytes;
  (params.word("projection") == "head" ? out.metadata.lane : out.metadata.layer) = projection;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "hashevict",
      .aliases = {"lsh"},
      .summary = "drops the token whose key hashes farthest from the current query, before attention",
      .paper =
          "Liu, Rabbani, O'Halloran, Sankaralingam, Hartley, Huang, Fermueller, Aloimonos, HashEvict: A "
          "Pre-Attention KV Cache Eviction Strategy using Locality-Sensitive Hashing, arXiv 2024, Algorithm "
          "1, https://arxiv.org/abs/2412.16187",
      .details =
          "Keys and queries are hashed to sign bits of random projections (SimHash). When a token meets a "
          "full cache, the resident with the largest Hamming distance to its query leaves, before any "
          "attention; the first B tokens just fill, the rest of the prompt and every generated token go "
          "the same way. The first `sinks` and the last `window` positions stay. A longer hash begins with "
          "the bits of a shorter one.",
      .departures = {{"paper: a query head's hash, grouped queries not spelled out",
                      "distances are added over the query heads that share a KV head; group"},
                     {"authors' code: hashes the arriving key instead of the query", "the query; hash=key"},
                     {"authors' code: one projection per layer", "one per KV head; projection=layer"},
                     {"authors' code: the prompt is cut to sinks and window, then hashed",
                      "the prompt streams through; prompt=window"},
                     {"authors' code: ten tokens before the arriving one stay",
                      "the arriving one counts among the last ten; window=11"}},
      .params =
          {count_param("bits", "16", {1, kMaxHashBits}, "length of a hash", "bits"),
           choice_param("hash", "query", {"query", "key"},
                        "what of the arriving token the cache is compared with"),
           choice_param(
               "projection", "head", {"head", "layer"},
               "whether every KV head has its own random projection or the KV heads of a layer share one"),
           choice_param(
               "group", "mean", {"mean", "max", "mean_query"},
               "how the query heads that share a set are reduced: mean distance, the distance to the "
               "most similar one, or the distance to their mean query"),
           choice_param("prompt", "stream", {"stream", "window"},
                        "the prompt passes through the cache token by token, or is cut to its first `sinks` "
                        "and its last tokens when it ends"),
           sinks_param(4), window_param(10), tie_param("slot")},
      .needs = {.keys = true, .queries = true},
      .needs_of = needs_of_hashevict,
      .randomised = true,
      .cost = cost_of,
      .rule = EvictionRule{.make = made<HashEvict>}};
}

}  // namespace kvsim::policy::hashevict
