// Gives some heads the whole prompt and the others sinks and recent tokens.
#include <algorithm>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/splits/head_matrix.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::retrieval_heads {
namespace {

constexpr const char* kFromTrace = "trace";

/// Attention outside sinks and recent tokens: mean over the prompt's rows and the lane's query heads.
class FarAttention final : public Profile {
 public:
  FarAttention(int n_query_heads, std::size_t sinks, std::size_t recent)
      : sinks_(sinks), recent_(recent), heads_(static_cast<std::size_t>(n_query_heads)) {}

  std::size_t prompt_rows() const override { return kAllRows; }

  void observe(const PromptRows& block) override {
    double& far = heads_[static_cast<std::size_t>(block.query_head)];
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      const std::size_t n_seen = block.first_query + i + 1;
      const std::span<const float> row = block.p.row(i).first(n_seen - std::min(recent_, n_seen));
      for (std::size_t j = sinks_; j < row.size(); ++j) far += static_cast<double>(row[j]);
    }
  }

  void finish_prompt(const Prompt& prompt) override { length_ = prompt.length(); }

  std::vector<double> values() const override {
    const double rows = static_cast<double>(length_) * static_cast<double>(heads_.size());
    return {std::accumulate(heads_.begin(), heads_.end(), 0.0) / rows};
  }

 private:
  std::size_t sinks_, recent_, length_ = 0;
  std::vector<double> heads_;
};

class RetrievalHeads final : public Allocation {
 public:
  explicit RetrievalHeads(const Params& params)
      : scores_(params.word("scores")),
        sinks_(params.count("sinks")),
        recent_(params.count("recent")),
        recent_share_(params.share("recent_share")),
        share_(params.real("retrieval")) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    if (scores_ != kFromTrace) return nullptr;
    return std::make_unique<FarAttention>(lane.n_query_heads(), sinks_, recent_);
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const Rooms room = rooms(request, request.units_per_layer());
    const std::vector<double> scores = unit_means(request, lane_scores(request));
    const std::size_t recent =
        std::max(recent_, static_cast<std::size_t>(recent_share_ * static_cast<double>(request.prompt)));
    std::vector<std::size_t> above;
    for (const Headroom& of : room.of)
      above.push_back(std::clamp(sinks_ + recent, of.floor, of.floor + of.most) - of.floor);
    const std::vector<std::size_t> order = largest_first(scores);
    const std::size_t n = share_ > 0
                              ? scores.size() - half_even(static_cast<double>(scores.size()) * (1 - share_))
                              : afford(room, order, above);
    std::vector<bool> retrieval(scores.size());
    for (std::size_t i = 0; i < n; ++i) retrieval[order[i]] = true;
    std::vector<std::size_t> out = per_unit(request, above);
    const std::size_t lanes_per_unit = out.size() / scores.size();
    for (std::size_t lane = 0; lane < out.size(); ++lane)
      if (retrieval[lane / lanes_per_unit]) out[lane] = kNeverEvict;
    return out;
  }

 private:
  std::vector<double> lane_scores(const AllocationRequest& request) const {
    std::vector<double> out;
    if (scores_ == kFromTrace) {
      if (request.profiles.size() != request.n_lanes()) bug("retrieval_heads needs a score of every lane");
      for (const std::vector<double>& lane : request.profiles) out.push_back(lane[0]);
    } else {
      for (const std::vector<double>& heads : head_matrix(request, scores_))
        out.push_back(*std::max_element(heads.begin(), heads.end()));
    }
    return out;
  }

  /// Returns how many retrieval heads, the first of `order`, the budget pays for when the others stream with
  /// `above`; the rest is spread over those others. If it pays for none, all heads stream with what there is.
  static std::size_t afford(const Rooms& room, std::span<const std::size_t> order,
                            std::vector<std::size_t>& above) {
    std::size_t left = room.total(), n = 0;
    std::vector<std::size_t> streaming = above;
    for (std::size_t unit = 0; unit < above.size(); ++unit)
      above[unit] = std::min(above[unit], room.of[unit].mean);
    const std::size_t spent = std::accumulate(streaming.begin(), streaming.end(), std::size_t{0});
    if (left > spent)
      for (left -= spent; n < order.size(); ++n) {
        const std::size_t unit = order[n], more = room.of[unit].most - streaming[unit];
        if (more == 0 || more > left) break;
        left -= more;
      }
    left = room.total();
    std::vector<std::size_t> most = room.most();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t unit = order[i];
      if (i < n) above[unit] = most[unit];
      left -= above[unit];
    }
    spread(above, left, most);
    for (std::size_t i = 0; i < n; ++i) above[order[i]] = 0;
    return n;
  }

  std::string scores_;
  std::size_t sinks_, recent_;
  double recent_share_, share_;
};

/// Scores from a file cost nothing.
Cost cost_of(const Params& params, const CostShape& shape) {
  if (params.word("scores") != kFromTrace) return {};
  return {.prompt_rows = kAllRows, .prompt = prompt_sums(shape, kAllRows)};
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "retrieval_heads",
      .summary = "retrieval heads keep everything, streaming heads sinks and recent tokens",
      .paper =
          "Xiao, Tang, Zuo, Guo, Yang, Tang, Fu, Han, DuoAttention: Efficient Long-Context LLM Inference "
          "with Retrieval and Streaming Heads, ICLR 2025, https://arxiv.org/abs/2410.10819; Tang, Lin, Lin, "
          "Han, Hong, Yao, Wang, RazorAttention: Efficient KV Cache Compression Through Retrieval Heads, "
          "ICLR 2025, https://arxiv.org/abs/2407.15891",
      .details =
          "Heads of all layers are ranked by a score; the best never drop anything, the others get sinks + "
          "recent tokens, meant for streaming_llm with the same sinks. By default as many are retrieval "
          "heads as the budget pays for, and what is left over is spread over the streaming heads, so the "
          "total is exact; with `retrieval` their number is that share, and the total follows from it. "
          "scores=trace ranks by the attention that the prompt's rows pay outside sinks and recent tokens; a "
          "file holds learned gates or measured echo and induction scores, of which the largest in a group "
          "counts.",
      .departures =
          {{"DuoAttention: gates trained on passkey retrieval", "from a file, or a measure of the trace"},
           {"RazorAttention: dropped tokens live on in one compensation token",
            "that is a representation, `compensation`; `razor_attention` has both"},
           {"RazorAttention: recent tokens are a fifth of long prompts, and some number in short ones",
            "recent_share=0.2 beside recent=; `razor_attention` has the numbers of its listing as we "
            "know them, which we could not confirm"},
           {"RazorAttention: heads are classed by a text of random tokens that is repeated",
            "scores=trace, which misleads: with it SmolLM2 answers 2 of 16 questions, with heads measured as "
            "in the paper 9, with the full cache 14. analysis/reproductions/induction_heads.py measures them "
            "in a run and makes a heads.json; write out what `razor_attention` stands for, with "
            "retrieval_heads(scores=heads.json,...)"}},
      .params = {word_param("scores", kFromTrace,
                            "trace: measured; else a file of numbers per layer and head, JSON, TSV or CSV"),
                 sinks_param(64),
                 count_param("recent", "256", {1, 1 << 30}, "newest tokens of a streaming head", "tokens"),
                 share_param("recent_share", "0",
                             "of the prompt that newest tokens of a streaming head are at least"),
                 real_param("retrieval", "0", {0, 1},
                            "of the heads that are retrieval heads; 0: as many as the budget pays for",
                            "share")},
      .needs_of =
          [](const Params& params) {
            return Needs{.prompt_rows = params.word("scores") == kFromTrace ? RowNeed::all : RowNeed::none};
          },
      .cost = cost_of,
      .rule = AllocationRule{.inexact = [](const Params& params) { return params.real("retrieval") > 0; },
                             .own_total = [](const Params& params) { return params.real("retrieval") > 0; },
                             .make = made<RetrievalHeads>}};
}

}  // namespace kvsim::policy::retrieval_heads
