// SirLLM: keeps the tokens that the model has least expected.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::sirllm {
namespace {

/// Rounds of a dialogue, counted from the text's first token.
struct Rounds {
  std::size_t tokens = 0;
  double decay = 1;

  std::size_t of(std::size_t position) const { return tokens == 0 ? 0 : position / tokens; }
  /// What is left of a number after so many rounds.
  double after(std::size_t rounds) const { return std::pow(decay, static_cast<double>(rounds)); }
};

/// The number of a token whose surprise nobody knows is the largest so far.
class Largest {
 public:
  double known(float surprise) {
    if (!std::isnan(surprise)) largest_ = std::max(largest_, static_cast<double>(surprise));
    return std::isnan(surprise) ? largest_ : static_cast<double>(surprise);
  }

 private:
  double largest_ = 0;
};

class SirllmDecoder final : public ScoredDecoder {
 public:
  SirllmDecoder(const Rounds& rounds, const Largest& largest, std::size_t round, const KeepRule& selection,
                std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), rounds_(rounds), largest_(largest), round_(round) {}

  void observe(const Step& step) override {
    if (const std::size_t round = rounds_.of(static_cast<std::size_t>(step.position)); round > round_) {
      for (double& score : scores()) score *= rounds_.after(round - round_);
      round_ = round;
    }
    admit(step, largest_.known(step.surprise));
  }

 private:
  Rounds rounds_;
  Largest largest_;
  std::size_t round_;
};

class Sirllm final : public ScoredEviction {
 public:
  Sirllm(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        rounds_{params.count("round"), params.real("decay")},
        decodes_(params.flag("decode")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const std::span<const float> surprises = prompt.surprises();
    round_ = rounds_.of(prompt.first() + prompt.length() - 1);
    for (const float surprise : surprises) largest_.known(surprise);
    std::vector<double> out;
    for (std::size_t row = 0; row < surprises.size(); ++row)
      out.push_back(largest_.known(surprises[row]) *
                    rounds_.after(round_ - rounds_.of(prompt.first() + row)));
    return out;
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    if (!decodes_) return nullptr;
    return std::make_unique<SirllmDecoder>(rounds_, largest_, round_, selection(budget), scores_of(slots));
  }

  Rounds rounds_;
  bool decodes_;
  Largest largest_;
  std::size_t round_ = 0;  ///< of the prompt's last token
};

void check(const Params& params) {
  if (params.real("decay") < 1 && params.count("round") == 0)
    usage_error("forgets from round to round, and a run is one round", "decay",
                "Say round=, how many tokens a round has.");
}

/// Beside the output head over the prompt, whose size the cost of a cache does not know.
Cost cost_of(const Params& params, const CostShape& shape) {
  return scored_cost(params, shape, {});
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "sirllm",
      .summary = "keeps the tokens that the model has least expected",
      .paper =
          "Yao, Li, Zhao, SirLLM: Streaming Infinite Retentive LLM, ACL 2024, https://arxiv.org/abs/2405.12528",
      .details =
          "Score of a token: its entropy -ln p, p being its probability given the tokens before it; all layers "
          "and heads keep the same tokens. With `decay`, what is held is multiplied by it whenever a round of "
          "`round` tokens has ended, so that old rounds fade. A token whose probability nobody knows, as the "
          "first, counts as the largest so far. A replay reads the recorded run's probabilities, kvsim evaluate "
          "those of the cache itself behind the cut. Costs leave out the output head over the prompt.",
      .departures =
          {{"authors' code: ids and logits are not shifted against each other, so that the number of a token says "
            "how unlikely the token before it was to come twice",
            "the paper's; external_scores takes such numbers"},
           {"authors' code: before each round the cache is cut so far that the round fits in",
            "one token leaves as one arrives; drop= for more"},
           {"authors' code: sinks that are among the largest leave their places to the newest tokens",
            "all places but the sinks' and the window's are those of the largest"},
           {"authors' experiments: a round is a question with its answer", "round= tokens"},
           {"paper: positions are numbered again inside the cache",
            "a replay keeps them; kvsim evaluate --positions cache-step does as the paper"}},
      .params = {real_param("decay", "1", {0, 1}, "what is left of a score when a round has ended"),
                 count_param("round", "64", {0, 1 << 30}, "of the text, a round of a dialogue; 0: all is one",
                             "tokens"),
                 sinks_param(4), window_param(0), drop_param(), decode_param(), tie_param("newest")},
      .needs = {.surprises = true},
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.scored = true, .make = made<Sirllm>}};
}

}  // namespace kvsim::policy::sirllm
