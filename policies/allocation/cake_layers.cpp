// Gives more to layers whose attention is spread widely and changes between queries.
#include <algorithm>
#include <cmath>

#include "policies/api/allocation.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::cake_layers {
namespace {

/// Entropy and variance of the last prompt rows over the positions before them, summed over query heads.
class Preference final : public Profile {
 public:
  Preference(int n_query_heads, std::size_t rows)
      : rows_(rows), heads_(static_cast<std::size_t>(n_query_heads)) {}

  std::size_t prompt_rows() const override { return rows_; }

  void observe(const PromptRows& block) override {
    const std::size_t n_keys = block.prompt_length - std::min(rows_, block.prompt_length);
    Head& head = heads_[static_cast<std::size_t>(block.query_head)];
    head.mean.resize(n_keys);
    head.squares.resize(n_keys);
    for (std::size_t i = 0; i < block.p.rows; ++i)
      if (block.first_query + i >= n_keys) add(head, block.p.row(i).first(n_keys));
  }

  void finish_prompt(const Prompt& /*prompt*/) override {}

  /// Returns entropy, then variance.
  std::vector<double> values() const override {
    double entropy = 0, variance = 0;
    for (const Head& head : heads_) {
      entropy += head.entropy;
      for (const double squares : head.squares)
        variance += head.n_rows > 1 ? squares / static_cast<double>(head.n_rows - 1) : 0;
    }
    return {entropy, variance};
  }

 private:
  struct Head {
    std::size_t n_rows = 0;
    double entropy = 0;
    std::vector<double> mean, squares;  // per key; squared distances from the mean (Welford)
  };

  static void add(Head& head, std::span<const float> row) {
    ++head.n_rows;
    for (std::size_t j = 0; j < row.size(); ++j) {
      const auto p = static_cast<double>(row[j]);
      if (p > 0) head.entropy -= p * std::log(p);
      const double before = p - head.mean[j];
      head.mean[j] += before / static_cast<double>(head.n_rows);
      head.squares[j] += before * (p - head.mean[j]);
    }
  }

  std::size_t rows_;
  std::vector<Head> heads_;
};

class Cake final : public Allocation {
 public:
  explicit Cake(const Params& params)
      : rows_(params.count("rows")), tau1_(params.real("tau1")), tau2_(params.real("tau2")) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    return std::make_unique<Preference>(lane.n_query_heads(), rows_);
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.profiles.size() != request.n_lanes()) bug("cake_layers needs the preference of every lane");
    const Rooms room = rooms(request);
    std::vector<double> preference;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      double entropy = 0, variance = 0;
      for (std::size_t head = 0; head < request.n_kv_heads; ++head) {
        const std::vector<double>& lane = request.profiles[layer * request.n_kv_heads + head];
        entropy += lane[0];
        variance += lane[1];
      }
      preference.push_back(std::pow(entropy, 1 / tau1_) * std::pow(variance, 1 / tau2_));
      if (!std::isfinite(preference.back()))
        usage_error("tau1 or tau2 is too small: the preference of layer " + std::to_string(layer) +
                        " is beyond what a number can hold",
                    "cake_layers");
    }
    return per_layer(request, shared_out(preference, room.total(), room.most()));
  }

 private:
  std::size_t rows_;
  double tau1_, tau2_;
};

ParamSpec temperature(const char* name, const char* help) {
  return real_param(name, "1", {0.05, 1000}, help);
}

/// Counts entropy and variance of the last rows, three operations each.
Cost cost_of(const Params& params, const CostShape& shape) {
  const std::size_t rows = params.count("rows");
  Cost out = window_cost(shape, rows, "none");
  out.prompt.ops += 6 * seen(shape, rows);
  out.metadata.layer = kNumberBytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "cake_layers",
      .summary = "layers whose attention is spread out and shifts between queries get more",
      .paper =
          "Qin, Cao, Lin, Hu, Fan, Cheng, Lin, Li, CAKE: Cascading and Adaptive KV Cache Eviction with Layer "
          "Preferences, ICLR 2025, https://arxiv.org/abs/2503.12491",
      .details =
          "From the last prompt rows over the positions before them: H, the entropy of the rows, and V, the "
          "variance of each position's attention between rows (divided by rows - 1), both summed over "
          "positions and query heads of a layer. The budget above the eviction's floor is split in "
          "proportion to H^(1/tau1) * V^(1/tau2) by largest remainder; what a layer cannot use goes evenly "
          "to those that can. The paper applies it layer by layer during the prefill; sets are nested, so "
          "the end is the same.",
      .departures = {{"authors' code: rounds by fix-ups, within a token per layer", "largest remainder"},
                     {"authors' code: tau1 and tau2 from a table per model and budget",
                      "parameters, 1 and 1"}},
      .params = {rows_param(32), temperature("tau1", "entropy counts with the power 1/tau1"),
                 temperature("tau2", "variance counts with the power 1/tau2")},
      .needs = {.prompt_rows = RowNeed::window},
      .cost = cost_of,
      .rule = AllocationRule{.make = made<Cake>}};
}

}  // namespace kvsim::policy::cake_layers
