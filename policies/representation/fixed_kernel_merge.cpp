// A mixture of neighbours with fixed weights, where LoCoCo learns them.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::fixed_kernel_merge {
namespace {

struct Rule {
  double blend = 0.5, plain = 0.5;
  std::size_t reach = 10;

  static Rule of(const Params& params) {
    return {params.real("blend"), params.share("plain"), params.count("reach")};
  }
};

class FixedKernelCodec final : public Codec {
 public:
  /// `scores`: [lanes][prompt].
  FixedKernelCodec(const Rule& rule, const std::vector<std::vector<double>>& scores)
      : rule_(rule), scores_(&scores) {
    // The ends of the kernel are three standard deviations away.
    const double sigma = static_cast<double>(2 * rule.reach + 1) / 6;
    for (std::size_t distance = 0; distance <= rule.reach; ++distance)
      kernel_.push_back(std::exp(-0.5 * std::pow(static_cast<double>(distance) / sigma, 2)));
  }

  void begin(const Prompt& prompt, CacheRows& rows) override {
    first_ = prompt.first();
    if (rule_.blend == 0 || rows.slots() == prompt.length()) return;
    for (std::size_t lane = 0; lane < scores_->size(); ++lane) {
      const MatrixView keys = prompt.keys(static_cast<int>(lane)),
                       values = prompt.values(static_cast<int>(lane));
      for (const std::size_t slot : mixed(lane, rows)) {
        const std::size_t own = static_cast<std::size_t>(rows.positions()[slot]) - first_;
        mix(keys, own, rows.key(lane, slot));
        mix(values, own, rows.value(lane, slot));
      }
    }
  }

  Ledger ledger(const CacheRows& rows) const override { return exact_ledger(rows.shape(), rows.slots()); }

 private:
  /// The slots of all but the best tokens.
  std::vector<std::size_t> mixed(std::size_t lane, const CacheRows& rows) const {
    std::vector<std::size_t> order(rows.slots());
    for (std::size_t slot = 0; slot < order.size(); ++slot) order[slot] = slot;
    const auto score = [&](std::size_t slot) {
      return (*scores_)[lane][static_cast<std::size_t>(rows.positions()[slot]) - first_];
    };
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      return score(a) != score(b) ? score(a) > score(b) : rows.positions()[a] < rows.positions()[b];
    });
    const auto plain = static_cast<std::size_t>(rule_.plain * static_cast<double>(order.size()));
    return {order.begin() + static_cast<std::ptrdiff_t>(plain), order.end()};
  }

  void mix(MatrixView prompt, std::size_t own, std::span<float> out) const {
    const std::size_t first = own - std::min(own, rule_.reach),
                      end = std::min(prompt.rows, own + rule_.reach + 1);
    std::vector<double> sum(out.size());
    double weights = 0;
    for (std::size_t row = first; row < end; ++row) {
      const double weight = kernel_[row < own ? own - row : row - own];
      weights += weight;
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += weight * static_cast<double>(prompt(row, c));
    }
    for (std::size_t c = 0; c < sum.size(); ++c)
      out[c] = static_cast<float>((1 - rule_.blend) * static_cast<double>(prompt(own, c)) +
                                  rule_.blend * sum[c] / weights);
  }

  Rule rule_;
  std::size_t first_ = 0;  ///< position of the prompt's first row
  const std::vector<std::vector<double>>* scores_;
  std::vector<double> kernel_{};  ///< by distance
};

class FixedKernelMerge final : public Representation {
 public:
  FixedKernelMerge(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const PromptColumns& columns) override { sums_.take(columns.query_head, columns.sum); }

  void finish_prompt(const Prompt& prompt) override {
    scores_.assign(static_cast<std::size_t>(unit_.n_lanes), std::vector<double>(prompt.length()));
    for (std::size_t head = 0; head < sums_.n_heads(); ++head)
      for (std::size_t j = 0; j < prompt.length(); ++j)
        scores_[head / static_cast<std::size_t>(unit_.group)][j] += sums_.head(head)[j];
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<FixedKernelCodec>(rule_, scores_); }

 private:
  Rule rule_;
  CacheUnit unit_;
  ColumnSums sums_;
  std::vector<std::vector<double>> scores_{};  ///< [lanes][prompt]
};

/// A row of what is kept becomes a weighted sum of its neighbours, once.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  Cost out;
  out.prompt_rows = kAllRows;
  out.prompt = prompt_sums(shape, shape.prompt);
  if (shape.prompt <= shape.budget) return out;
  const double numbers = real(shape.budget) * real(shape.kv_heads * (shape.head_dim + shape.value_dim));
  const double kernel = real(2 * rule.reach + 1);
  out.prompt = out.prompt + Work{.flops = 2 * kernel * numbers,
                                 .bytes = (kernel + 1) * numbers * real(shape.element_bytes),
                                 .launches = 2};
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "fixed_kernel_merge",
      .summary =
          "what is kept of the prompt is blended with a Gaussian mixture of its neighbours: ours, not LoCoCo",
      .details =
          "Not a published rule. LoCoCo (Cai, Tian, Wang, Chen, LoCoCo: Dropping In Convolutions for Long "
          "Context Compression, ICML 2024, https://arxiv.org/abs/2406.05317) keeps heavy hitters in half of "
          "its slots; every other slot is a mixture of tokens whose weights a trained convolution computes, "
          "blended with the next heavy hitter. Here the weights are a fixed Gaussian around that token. When "
          "the prompt is cut, in each KV head, the tokens with the most accumulated attention of those that "
          "stay are left as they are. Each of the others becomes (1 - blend) times itself plus blend times "
          "the mixture of the prompt's tokens near it, in keys and in values; the weights of a mixture add "
          "up to 1. Where the whole prompt stays, nothing is mixed, and later tokens stay as they come. "
          "Results say nothing of what the trained method reaches. Mixed numbers are not rounded to the "
          "format of the trace.",
      .departures =
          {{"LoCoCo: weights of a mixture are computed by a trained convolution of width 21, keys and values "
            "together, over chunks of 512 tokens",
            "a Gaussian of width 21 with its ends at three standard deviations, over the prompt at once"},
           {"LoCoCo: the blend is learned, around one half", "blend=0.5; 0 is the eviction alone"},
           {"LoCoCo: the next heavy hitters are what a mixture is blended with",
            "the other tokens that the eviction keeps; h2o(recent=0) keeps heavy hitters alone"}},
      .params = {real_param("blend", "0.5", {0, 1}, "share of the mixture; 0: every token stays as it is"),
                 count_param("reach", "10", {0, 1 << 16},
                             "on either side that a mixture takes in: its width is twice that and one",
                             "tokens"),
                 share_param("plain", "0.5",
                             "of the tokens kept that stay as they are, those with the most attention")},
      .needs = {.prompt_rows = RowNeed::all, .keys = true, .values = true},
      .cost = cost_of,
      .rule = RepresentationRule{.make = made<FixedKernelMerge, Rule>}};
}

}  // namespace kvsim::policy::fixed_kernel_merge
