#include "analysis/choice/choice_facts.hpp"

#include <cmath>

#include "analysis/choice/engine_recipes.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/loop/cell_caches.hpp"

namespace kvsim::analysis {
namespace {

std::string percent(double share) {
  return rounded_text(100 * share, 0) + " %";
}

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string answers_text(const KeptAnswers& kept) {
  const std::string of_prompts = std::to_string(kept.prompts) + " prompts";
  if (kept.of == 0) return "none of " + of_prompts + " is judged; KL " + rounded_text(kept.kl) + " nats";
  return std::to_string(kept.right) + " of the " + std::to_string(kept.of) +
         " that the full cache answers of " + of_prompts + ": " + percent_of(kept.right, kept.of) +
         " (95 % interval " + rounded_text(100 * kept.share.low, 0) + " to " +
         rounded_text(100 * kept.share.high, 0) + ")";
}

/// Whether it loses less of the full cache's answers than the margin, as far as the interval tells.
std::string margin_text(const KeptAnswers& kept, double loss) {
  const std::string margin = percent(loss) + " of the full cache's answers: ";
  if (kept.share.low >= 1 - loss) return "loses less than " + margin + "shown";
  if (kept.share.high < 1 - loss) return "loses more than " + margin + "shown";
  return "loses less than " + margin + "open; more prompts would tell";
}

/// What engines do it, a line each; empty: none.
std::string recipe_lines(const AskedPolicy& policy, const RunningMean& kept) {
  std::string out;
  for (const EngineRecipe& recipe : engine_recipes(policy.composition.params, kept.value().value_or(1)))
    out += (out.empty() ? "" : "\n") + recipe.engine + ": " + recipe.words +
           (recipe.apart.empty() ? "" : " (" + recipe.apart + ")");
  return out;
}

constexpr const char* kNoEngine = "none of those that kvsim knows does this";

std::string recipes_text(const Choice& choice) {
  const std::string out = recipe_lines(choice.winner.policy, choice.confirmed.budget_share);
  if (!out.empty()) return out;
  if (!choice.nearest) return std::string(kNoEngine) + ", and none of what they do answered";
  const TriedSetting& nearest = *choice.nearest;
  const auto kept = standing(nearest.answers).kept;
  return std::string(kNoEngine) + "; nearest of those tried:\n" + nearest.policy.text + ", which kept " +
         (kept ? percent(*kept) : "-") + " of " + std::to_string(nearest.answers.size()) +
         " prompts of the search\n" + recipe_lines(nearest.policy, nearest.budget_share);
}

ChoiceFact python_fact(const AskedPolicy& policy, const std::string& budget) {
  const std::string refusal = sim::CellCaches::refusal(policy.composition);
  if (!refusal.empty()) return {"Python", "kvsim.hf.Cache does not do this: " + refusal};
  return {"Python", "kvsim.hf.Cache(model, \"" + policy.text + "\", \"" + budget + "\")", true};
}

/// What the cap buys of a prompt's tokens, as a budget, rounded down.
std::string budget_text(const RunningMean& share) {
  return rounded_text(std::floor(1000 * share.value().value_or(1)) / 10, 1) + '%';
}

std::string mean_bytes(double mean) {
  return bytes_text(static_cast<std::uint64_t>(std::llround(mean)));
}

/// analysis/TRUST.md in a line.
const char* worth_of_losses(const trace::Cut& cut, double share) {
  if (cut.at == trace::Cut::At::prompt)
    return "with the question known, this loss orders policies as answers do on two models of two";
  return trusts_peak_loss(cut, share)
             ? "with the question not known, this loss orders policies as answers do on one model of two"
             : "with the question not known and so little kept, no loss orders policies as answers do";
}

}  // namespace

std::vector<ChoiceFact> facts_of(const ChoiceRequest& request, const Choice& choice) {
  const std::string& setting = choice.winner.policy.text;
  const std::string budget = budget_text(choice.confirmed.budget_share);
  return {
      {"setting", setting + " at " + budget + " of the tokens"},
      {"holds", mean_bytes(choice.confirmed.held_bytes.value().value_or(0)) +
                    " after the answer; a whole prompt takes " + mean_bytes(choice.full_bytes)},
      {"answers", answers_text(choice.answers)},
      {"margin", margin_text(choice.answers, request.margin)},
      {"search", std::to_string(choice.tried.rows.size()) + " settings: " + std::to_string(choice.fitting) +
                     " fit, " + std::to_string(choice.screened) + " answered. There it kept " +
                     percent_of(choice.found.right, choice.found.of) + ", with the luck of the best of many"},
      {"again",
       "kvsim evaluate " +
           shell_words({"--model", request.model, "--workload", request.workload, "--cut",
                        request.evaluation.cuts.front().text(), "--policy", setting, "--budget", budget}),
       true},
      python_fact(choice.winner.policy, budget),
      {"engine", recipes_text(choice), true}};
}

std::vector<ChoiceFact> facts_of(const LossChoiceRequest& request, const LossChoice& choice) {
  const ReplayedSetting &found = choice.tried.front(), &again = choice.confirmed;
  const std::string& setting = found.policy.text;
  const std::string budget = budget_text(again.budget_share);
  const auto loss = [](const ReplayedSetting& of) { return rounded_text(of.peak_loss.value().value_or(0)); };
  std::vector<std::string> words{"kvsim", "replay"};
  words.insert(words.end(), request.files.begin(), request.files.end());
  for (const std::string& word : {std::string("--cut"), request.cut.text(), std::string("--policy"), setting,
                                  std::string("--budget"), budget})
    words.push_back(word);
  const std::string engines = recipe_lines(found.policy, again.budget_share);
  return {{"setting", setting + " at " + budget + " of the tokens"},
          {"holds", mean_bytes(again.held_bytes.value().value_or(0)) + " of " +
                        mean_bytes(choice.full_bytes) + " a run"},
          {"loses", loss(again) + " of what is attended most (peak loss), on " +
                        count_text(choice.confirm, "run") + " that did not choose"},
          {"search", std::to_string(choice.tried.size()) + " settings on " + count_text(choice.chose, "run") +
                         "; there it lost " + loss(found) + ", with the luck of the best of many"},
          {"worth", std::string(worth_of_losses(request.cut, choice.least_share)) +
                        "\ncodes are not tried: they lose no attention. --model and --workload choose by "
                        "answers"},
          {"again", shell_words(words), true},
          {"engine", engines.empty() ? kNoEngine : engines, true}};
}

}  // namespace kvsim::analysis
