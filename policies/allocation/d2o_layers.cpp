// Gives more to layers whose attention is flat.
#include <algorithm>
#include <cmath>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/splits/exempt_layers.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::d2o_layers {
namespace {

/// Per query head, the variance over positions of the attention they receive.
class Unevenness final : public Profile {
 public:
  explicit Unevenness(int n_query_heads) : sums_(n_query_heads, kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const PromptColumns& columns) override { sums_.take(columns.query_head, columns.sum); }
  void finish_prompt(const Prompt& /*prompt*/) override {}

  std::vector<double> values() const override {
    std::vector<double> out;
    for (std::size_t head = 0; head < sums_.n_heads(); ++head) out.push_back(variance(sums_.head(head)));
    return out;
  }

 private:
  static double variance(std::span<const double> values) {
    const auto n = static_cast<double>(values.size());
    double mean = 0, squares = 0;
    for (const double x : values) mean += x / n;
    for (const double x : values) squares += (x - mean) * (x - mean);
    return values.size() > 1 ? squares / (n - 1) : 0;
  }

  ColumnSums sums_;
};

class D2o final : public Allocation {
 public:
  explicit D2o(const Params& params) : params_(params) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    return std::make_unique<Unevenness>(lane.n_query_heads());
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const ExemptLayers exempt(params_, request.n_layers);
    const std::vector<double> share = shares(request);
    std::vector<double> of_others;
    for (std::size_t layer = 0; layer < share.size(); ++layer)
      if (!exempt.contains(layer)) of_others.push_back(share[layer]);
    if (published_variant(params_)) return exempt.lanes(request, official(request, of_others));
    return exempt.lanes(
        request, shared_out(of_others, exempt.left_for_others(request), exempt.most_of_others(request)));
  }

 private:
  /// Returns softmax of -u over all layers. u of a layer is the mean of its heads' variances, scaled so that
  /// the layer's least is 0 and its largest 1.
  static std::vector<double> shares(const AllocationRequest& request) {
    if (request.profiles.size() != request.n_lanes()) bug("d2o_layers needs the variances of every lane");
    std::vector<double> share;
    double sum = 0;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      std::vector<double> variances;
      for (std::size_t head = 0; head < request.n_kv_heads; ++head) {
        const std::vector<double>& lane = request.profiles[layer * request.n_kv_heads + head];
        variances.insert(variances.end(), lane.begin(), lane.end());
      }
      share.push_back(std::exp(-mean_in_range(variances)));
      sum += share.back();
    }
    for (double& x : share) x /= sum;
    return share;
  }

  static double mean_in_range(const std::vector<double>& values) {
    const auto [least, largest] = std::minmax_element(values.begin(), values.end());
    if (values.empty() || !(*largest > *least)) return 0;
    double sum = 0;
    for (const double x : values) sum += (x - *least) / (*largest - *least);
    return sum / static_cast<double>(values.size());
  }

  /// Returns the ratio softmax * layers * budget share, between a hundredth of the prompt and all of it.
  static std::vector<std::size_t> official(const AllocationRequest& request,
                                           const std::vector<double>& shares) {
    require_even(request, "d2o_layers(variant=official)");
    const Headroom room = headroom(request);
    const auto prompt = static_cast<double>(request.prompt);
    const double layers_times_rho =
        static_cast<double>(request.n_layers) * static_cast<double>(room.floor + room.mean) / prompt;
    std::vector<std::size_t> above;
    for (const double share : shares) {
      const double ratio = std::clamp(share * layers_times_rho, 0.01, 1.0);
      above.push_back(std::max(static_cast<std::size_t>(ratio * prompt), room.floor) - room.floor);
    }
    return above;
  }

  Params params_;
};

/// Counts column sums of every query head, and their variance.
Cost cost_of(const Params&, const CostShape& shape) {
  const double sums = real(shape.query_heads) * real(shape.prompt);
  Cost out;
  out.prompt_rows = kAllRows;
  out.scratch_bytes = whole_bytes(kScoreBytes * sums);
  out.prompt = prompt_sums(shape, kAllRows) + Work{.ops = 4 * sums, .launches = 1};
  out.metadata.layer = kNumberBytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "d2o_layers",
      .summary = "layers whose heads spread their attention get more; three layers are never compressed",
      .paper =
          "Wan, Wu, Zhang, Xin, Tao, Zhu, Wang, Luo, Xiong, Wang, Zhang, D2O: Dynamic Discriminative "
          "Operations for Efficient Long-Context Inference of Large Language Models, ICLR 2025, "
          "https://arxiv.org/abs/2406.13035",
      .details =
          "Per query head: the variance over positions of the attention each received from the whole prompt. "
          "Within a layer these are put between 0 (its least) and 1 (its largest); their mean u gives the "
          "layer the weight exp(-u). The first two layers and the last are exempt. The others share what the "
          "budget leaves above the floor by weight, exactly. variant=official: each gets softmax(-u) * "
          "layers * budget/prompt of the prompt, at least 1 % and at most all of it, beside the exempt "
          "layers.",
      .departures = {{"authors' code: exempt layers come on top of the budget",
                      "they count in the total; variant=official"}},
      .params = {exempt_first_param(2), exempt_last_param(1), variant_param({"official"})},
      .needs = {.prompt_rows = RowNeed::all},
      .cost = cost_of,
      .rule = AllocationRule{.inexact = published_variant, .make = made<D2o>}};
}

}  // namespace kvsim::policy::d2o_layers
