// Keeps keys whose direction differs from the others'.
#include <algorithm>
#include <array>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::keydiff {
namespace {

/// Appends key / |key| to `units`; a key of length 0 stays 0.
void add_unit(std::span<const float> key, std::vector<float>& units) {
  const double squares = squared_norm(key);
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : squares;
  for (const float x : key) units.push_back(static_cast<float>(factor * static_cast<double>(x)));
}

// Both loops over the units below keep W sums at a time. Each is added up in the order of its terms, and the
// processor works on all of them at once.

/// Adds up W components of all rows, beginning with the first of `units`.
template <std::size_t W>
void add_rows(std::span<const float> units, std::size_t dim, double* out) {
  std::array<double, W> sums{};
  for (std::size_t i = 0; i < units.size(); i += dim)
    for (std::size_t c = 0; c < W; ++c) sums[c] += static_cast<double>(units[i + c]);
  std::copy(sums.begin(), sums.end(), out);
}

/// Sets W scores to `factor` times the products of as many units with `sum`.
template <std::size_t W>
void multiply(const float* units, std::span<const double> sum, double factor, double* out) {
  std::array<double, W> dots{};
  for (std::size_t c = 0; c < sum.size(); ++c)
    for (std::size_t i = 0; i < W; ++i) dots[i] += sum[c] * static_cast<double>(units[i * sum.size() + c]);
  for (std::size_t i = 0; i < W; ++i) out[i] = factor * dots[i];
}

/// Sets scores to minus the cosine between each of the `units`, row-major [n, dim], and their mean.
void score_units(std::span<const float> units, std::size_t dim, std::span<double> scores) {
  constexpr std::size_t kComponents = 16, kUnits = 8;
  if (scores.empty()) return;
  std::vector<double> sum(dim);
  std::size_t c = 0, i = 0;
  for (; c + kComponents <= dim; c += kComponents) add_rows<kComponents>(units.subspan(c), dim, &sum[c]);
  for (; c < dim; ++c) add_rows<1>(units.subspan(c), dim, &sum[c]);
  double squares = 0;
  for (const double x : sum) squares += x * x;
  const double factor = squares > 0 ? -1 / std::sqrt(squares) : squares;
  for (; i + kUnits <= scores.size(); i += kUnits) multiply<kUnits>(&units[i * dim], sum, factor, &scores[i]);
  for (; i < scores.size(); ++i) multiply<1>(&units[i * dim], sum, factor, &scores[i]);
}

class KeyDiffDecoder final : public ScoredDecoder, public Renewing {
 public:
  /// `units`: of the slots kept from the prompt.
  KeyDiffDecoder(const KeepRule& selection, std::size_t dim, std::vector<float> units)
      : ScoredDecoder(selection, std::vector<double>(units.size() / dim)),
        dim_(dim),
        units_(std::move(units)) {
    score_units(units_, dim_, scores());
  }

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    own_.clear();
    add_unit(step.keys.row(0), own_);
    units_.resize(scores.size() * dim_);
    std::copy(own_.begin(), own_.end(), units_.begin() + static_cast<std::ptrdiff_t>(step.own_slot * dim_));
    score_units(units_, dim_, scores);
  }
  void renew(const Step& step) override { observe(step); }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    close_up(units_, victims, dim_);
  }

 private:
  std::size_t dim_;
  std::vector<float> units_, own_;
};

class KeyDiff final : public ScoredEviction {
 public:
  KeyDiff(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), decodes_(params.flag("decode")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const MatrixView keys = prompt.keys(0);
    units_.clear();
    for (std::size_t j = 0; j < prompt.length(); ++j) add_unit(keys.row(j), units_);
    std::vector<double> out(prompt.length());
    score_units(units_, keys.cols, out);
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    const auto dim = static_cast<std::size_t>(unit().head_dim);
    std::vector<float> units;
    for (const Position position : slots) {
      const auto from =
          units_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(position) * dim);
      units.insert(units.end(), from, from + static_cast<std::ptrdiff_t>(dim));
    }
    return std::make_unique<KeyDiffDecoder>(selection(budget), dim, std::move(units));
  }

  bool decodes_;
  std::vector<float> units_;  ///< [prompt, head_dim]
};

/// A slot keeps the length of its key, a lane the sum of its unit keys. Every step compares all keys with
/// that sum, which reads the keys once more.
Cost cost_of(const Params& params, const CostShape& shape) {
  Scoring scoring;
  scoring.prompt = over_keys(shape, shape.prompt, 4) + over_keys(shape, shape.prompt, 2);
  scoring.token = over_keys(shape, 1, 4);
  scoring.slot = over_keys(shape, 1, 2);
  scoring.slot.launches = 0;
  Cost out = scored_cost(params, shape, scoring);
  if (!out.appends) out.metadata.lane = shape.head_dim * sizeof(float);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "keydiff",
      .summary = "keeps keys that point elsewhere than the mean of the others",
      .paper =
          "Park, Jones, Morse, Goel, Lee, Lott, KeyDiff: Key Similarity-Based KV Cache Eviction for "
          "Long-Context LLM Inference in Resource-Constrained Environments, arXiv 2025, "
          "https://arxiv.org/abs/2504.15364",
      .details =
          "Score of a token: minus the cosine between its key and the mean of all resident keys, each "
          "scaled to length 1, per KV head. The mean is that of the prompt when it is ranked, and of what "
          "is resident at every later step. No attention is needed.",
      .departures = {{"paper: the prompt comes in blocks that are ranked with what is held",
                      "the prompt is ranked when it ends; prompt=stream is a block of one token"},
                     {"kvpress: generated tokens are appended", "keydiff.kvpress"}},
      .params = {sinks_param(0), window_param(0), granularity_param(), decode_param(), phase_param(),
                 prompt_param(), tie_param()},
      .needs = {.keys = true},
      .cost = cost_of,
      .check = check_decode,
      .rule = EvictionRule{.scored = true, .make = made<KeyDiff>}};
}

}  // namespace kvsim::policy::keydiff
