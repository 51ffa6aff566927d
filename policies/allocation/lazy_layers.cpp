// Cuts layers to sinks and a window whose newest query looks nowhere else.
#include <algorithm>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::lazy_layers {
namespace {

/// What the newest row pays to the first and the newest positions, mean over the lane's query heads.
class EndsOfRow final : public Profile {
 public:
  EndsOfRow(int heads, std::size_t sinks, std::size_t recent)
      : heads_(heads), sinks_(sinks), recent_(recent) {}

  std::size_t prompt_rows() const override { return 1; }
  void observe(const PromptRows& rows) override {
    const std::size_t n = rows.prompt_length;
    if (rows.first_query + rows.p.rows < n) return;
    const auto row = rows.p.row(n - 1 - rows.first_query);
    const std::size_t sinks = sinks_ - std::min(sinks_, rows.first);
    for (std::size_t j = 0; j < n; ++j)
      if (j < sinks || j + recent_ >= n) share_ += static_cast<double>(row[j]) / heads_;
  }
  void finish_prompt(const Prompt&) override {}
  std::vector<double> values() const override { return {share_}; }

 private:
  int heads_;
  std::size_t sinks_, recent_;
  double share_ = 0;
};

class LazyLayers final : public Allocation {
 public:
  explicit LazyLayers(const Params& params)
      : threshold_(params.real("threshold")),
        sinks_(params.count("sinks")),
        recent_(params.count("recent")) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    return std::make_unique<EndsOfRow>(lane.n_query_heads(), sinks_, recent_);
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.profiles.size() != request.n_lanes()) bug("lazy_layers needs the last row of every lane");
    std::vector<double> of_lanes;
    for (const std::vector<double>& profile : request.profiles) of_lanes.push_back(profile.front());
    const std::vector<double> shares = layer_means(request, of_lanes);
    std::vector<std::size_t> out;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      const std::size_t held = request.held_in(layer), cut = std::max(sinks_ + recent_ - 1, request.floor);
      const bool lazy = held > sinks_ + recent_ + 1 && shares[layer] > threshold_;
      out.insert(out.end(), request.n_kv_heads, lazy ? std::min(cut, held) : kNeverEvict);
    }
    return out;
  }

 private:
  double threshold_;
  std::size_t sinks_, recent_;
};

bool always(const Params&) {
  return true;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "lazy_layers",
      .summary =
          "layers whose newest query looks at sinks and a window alone are cut to these, others keep everything",
      .paper =
          "Zhang et al., SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction, arXiv 2024, "
          "https://arxiv.org/abs/2410.13846",
      .details =
          "As kvpress has it (SimLayerKVPress). A layer is lazy if the newest prompt row pays more than `threshold` "
          "to the first `sinks` and the newest `recent` positions, mean over its query heads. Its lanes get sinks + "
          "recent - 1 tokens, which streaming_llm fills with just these; the others never evict. Prompts that are no "
          "longer than sinks + recent + 1 are not cut. The budget that is asked for counts for nothing: compare by "
          "kept_tokens. Thresholds of the authors: Llama 3 0.9, Llama 2 0.65, Mistral 0.8, Qwen 0.85.",
      .params = {real_param("threshold", "0.9", {0, 1}, "of attention above which a layer is lazy", "share"),
                 count_param("sinks", "4", {0, 1 << 20}, "first positions that a lazy layer keeps", "tokens"),
                 count_param("recent", "1024", {1, 1 << 30}, "newest positions that a lazy layer keeps",
                             "tokens")},
      .needs = {.prompt_rows = RowNeed::window},
      .cost =
          [](const Params&, const CostShape& shape) {
            Cost out = window_cost(shape, 1, "none");
            out.metadata.layer = kNumberBytes;
            return out;
          },
      .rule = AllocationRule{.inexact = always, .own_total = always, .make = made<LazyLayers>}};
}

}  // namespace kvsim::policy::lazy_layers
