// PQCache: logits from product codes of the keys, whose centres are those of the prompt.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "policies/parts/index/k_means.hpp"
#include "policies/parts/index/reading.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::pqcache {
namespace {

constexpr std::uint64_t kCentreBits = 16;

struct Rule {
  Amount read;
  std::size_t parts = 2, bits = 6, sinks = 32;
  double recent = 0.5;
  std::size_t rounds = 10;

  static Rule of(const Params& params) {
    return {params.amount("read"), params.count("parts"),  params.count("bits"),
            params.count("sinks"), params.share("recent"), params.count("rounds")};
  }
  std::size_t centres() const { return std::size_t{1} << bits; }
  std::size_t parts_of(std::size_t dim) const { return std::min(parts, dim); }
  /// First channel of a part of a key.
  std::size_t first_of(std::size_t part, std::size_t dim) const { return part * dim / parts_of(dim); }
  /// Tokens that are read of `stored` beside the query's own.
  std::size_t count(std::size_t stored) const {
    return std::max<std::size_t>(read.of(stored), std::min(sinks, stored));
  }
  /// How many of them are the newest.
  std::size_t recent_of(std::size_t count) const {
    return static_cast<std::size_t>(recent * static_cast<double>(count - std::min(sinks, count)));
  }
  /// What the codes of so many tokens and all centres take, per lane.
  std::uint64_t lane_bits(std::size_t tokens, std::size_t dim) const {
    return tokens * parts_of(dim) * bits + centres() * dim * kCentreBits;
  }
};

/// Per lane and part of a key; nothing where the prompt is shorter than there are centres.
using Codebooks = std::vector<std::vector<VectorCode>>;

class PqSelector final : public UnitSelector {
 public:
  PqSelector(const Rule& rule, const CacheUnit& unit, const Codebooks& codebooks)
      : UnitSelector(unit), rule_(rule), codebooks_(codebooks), codes_(codebooks.size()) {}

  void begin(const Prompt& /*prompt*/, const StoredTokens& tokens) override { joined(0, 0, tokens); }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) override {
    for (auto& lane : codes_) lane.resize(tokens.slots() * rule_.parts_of(dim_));
    for_changed(own_slot, moved_from, tokens, [&](std::size_t slot) { code(slot, tokens); });
    coded_ = static_cast<std::size_t>(
        std::ranges::count_if(tokens.positions(), [&](Position p) { return is_coded(p); }));
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = rule_.count(slots) + (asking.own_slot ? 1 : 0);
    if (codebooks_.empty() || count >= slots) return reads.everything(slots);
    find_candidates(asking, tokens);
    for (std::size_t lane = 0; lane < codebooks_.size(); ++lane) {
      scores_.assign(slots, std::numeric_limits<float>::infinity());
      for (const std::size_t slot : candidates_) scores_[slot] = 0;
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
        add_attention(asking, tokens, lane, head);
      highest_scores(scores_, count, chosen_);
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) reads.of(head) = chosen_;
      reads.index_bits += rule_.lane_bits(candidates_.size(), dim_);
    }
  }

  std::uint64_t index_bits() const override { return codebooks_.size() * rule_.lane_bits(coded_, dim_); }

 private:
  bool is_coded(Position position) const { return static_cast<std::size_t>(position) >= rule_.sinks; }

  /// All but the first and the newest tokens.
  void find_candidates(const Asking& asking, const StoredTokens& tokens) {
    const auto recent = static_cast<Position>(rule_.recent_of(rule_.count(tokens.slots())));
    candidates_.clear();
    for (std::size_t slot = 0; slot < tokens.slots(); ++slot) {
      const Position position = tokens.positions()[slot];
      if (is_coded(position) && asking.position - position > recent) candidates_.push_back(slot);
    }
  }

  /// The softmax of the head's coded logits over the candidates.
  void add_attention(const Asking& asking, const StoredTokens& tokens, std::size_t lane, std::size_t head) {
    const std::size_t parts = rule_.parts_of(dim_), n = rule_.centres();
    const std::span<const float> query = asking.queries.row(head);
    products_.resize(parts * n);
    for (std::size_t part = 0; part < parts; ++part) {
      const VectorCode& code = codebooks_[lane][part];
      for (std::size_t i = 0; i < n; ++i)
        products_[part * n + i] =
            static_cast<float>(asking.scale) *
            dot(query.data() + rule_.first_of(part, dim_), code.centre(i).data(), code.dim);
    }
    logits_.clear();
    float largest = -std::numeric_limits<float>::infinity();
    for (const std::size_t slot : candidates_) {
      float logit = tokens.bias(lane, slot);
      for (std::size_t part = 0; part < parts; ++part)
        logit += products_[part * n + codes_[lane][slot * parts + part]];
      largest = std::max(largest, logit);
      logits_.push_back(logit);
    }
    double sum = 0;
    for (float& logit : logits_) sum += static_cast<double>(logit = std::exp(logit - largest));
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      scores_[candidates_[i]] += logits_[i] / static_cast<float>(sum);
  }

  void code(std::size_t slot, const StoredTokens& tokens) {
    const std::size_t parts = rule_.parts_of(dim_);
    for (std::size_t lane = 0; lane < codes_.size(); ++lane)
      for (std::size_t part = 0; part < parts; ++part) {
        const VectorCode& of = codebooks_[lane][part];
        codes_[lane][slot * parts + part] = static_cast<std::uint16_t>(
            of.nearest(tokens.key(lane, slot).subspan(rule_.first_of(part, dim_), of.dim)));
      }
  }

  Rule rule_;
  const Codebooks& codebooks_;
  std::vector<std::vector<std::uint16_t>> codes_;  ///< per lane [slots][parts]
  std::size_t coded_ = 0;                          ///< tokens that are not of the first
  std::vector<std::size_t> candidates_, chosen_;   // scratch
  std::vector<float> products_, logits_, scores_;
};

class Pqcache final : public Selection {
 public:
  Pqcache(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}

  void finish_prompt(const Prompt& prompt) override {
    const std::size_t sinks = prompt.sinks(rule_.sinks), n = prompt.length() - sinks;
    if (n < rule_.centres()) return;
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      std::vector<VectorCode>& parts = codebooks_.emplace_back();
      const MatrixView keys = prompt.keys(lane);
      for (std::size_t part = 0; part < rule_.parts_of(dim); ++part) {
        const std::size_t first = rule_.first_of(part, dim), width = rule_.first_of(part + 1, dim) - first;
        const std::uint64_t key =
            combine({unit_.seed, key_of("pqcache"), static_cast<std::uint64_t>(unit_.layer),
                     static_cast<std::uint64_t>(unit_.first_kv_head + lane), part});
        parts.push_back(clustered({keys.data + sinks * keys.stride + first, n, width, keys.stride},
                                  rule_.centres(), key, rule_.rounds));
      }
    }
  }
  std::unique_ptr<Selector> selector() const override {
    return std::make_unique<PqSelector>(rule_, unit_, codebooks_);
  }

 private:
  Rule rule_;
  CacheUnit unit_;
  Codebooks codebooks_;
};

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = Rule::of(params);
  const std::size_t count = rule.count(stored), sinks = std::min(rule.sinks, stored);
  if (stored < sinks + rule.centres()) return dense_reads(stored);
  const auto bytes = [&](std::size_t tokens) {
    return static_cast<double>(shape.kv_heads * rule.lane_bits(tokens, shape.head_dim)) / 8;
  };
  ReadCount out = dense_reads(count);
  out.index_bytes = bytes(stored - sinks);
  if (count + 1 < stored) out.index_bytes_read = bytes(stored - sinks - rule.recent_of(count) - 1);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "pqcache",
      .summary = "reads the tokens of the highest attention by product codes of the keys",
      .paper =
          "Zhang, Ji, Chen, Fu, Miao, Nie, Chen, Cui, PQCache: Product Quantization-based KVCache for Long "
          "Context LLM Inference, SIGMOD 2025, arXiv 2407.12820",
      .details =
          "Each half of a key is coded as the nearest of 64 centres, which k-means finds among the prompt's "
          "keys behind the first 32 tokens. Later tokens get codes of the same centres. Products of the "
          "query with the centres give coded logits; their softmax, added up over the query heads of a KV "
          "head, ranks the tokens. All heads of the KV head read the first 32 tokens, the newest half of the "
          "rest of `read`, and the highest for the other half, and their own. A prompt with fewer tokens "
          "than centres has no codes and is read whole; a cost takes it that the prompt has enough.",
      .departures = {{"authors' code: a tenth of the prompt's tokens behind the first 32 is read beside "
                      "them, as many at every step",
                      "read= is all but the query's own token, and a share is of what is stored at the step"},
                     {"authors' code: a new token is coded when it leaves the newest", "as it joins"},
                     {"authors' code: 3 to 10 rounds of k-means, as many as a prefill leaves time for",
                      "rounds=10"},
                     {"authors' code: the GPU caches blocks of tokens that were read before", "not here"}},
      .params = {read_param("10%"),
                 count_param("parts", "2", {1, 4096},
                             "of a key that are coded each, of as equal size as can be"),
                 count_param("bits", "6", {1, 12}, "of a code", "bits"),
                 count_param("sinks", "32", {0, 65536},
                             "first of the sequence that have no codes and are always read", "tokens"),
                 share_param("recent", "0.5",
                             "of what is read beside the sinks that is the newest tokens, rounded down"),
                 count_param("rounds", "10", {1, 10000}, "of k-means at most"), dense_param(0)},
      .needs = {.keys = true},
      .randomised = true,
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selected<Pqcache, Rule>}};
}

}  // namespace kvsim::policy::pqcache
