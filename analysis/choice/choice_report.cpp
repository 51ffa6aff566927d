#include "analysis/choice/choice_report.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "analysis/choice/engine_recipes.hpp"
#include "analysis/drawing/figure.hpp"
#include "analysis/report/html.hpp"
#include "analysis/report/live_data.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
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

namespace {

/// What both kinds of choice show.
struct ShownChoice {
  std::string cap, words;
  std::vector<ChoiceFact> facts;
  const Records& tried;
  const char* measure;     ///< column of `tried` by which settings are compared
  Axis axis;               ///< of that
  std::string setting;     ///< the chosen one
  Point found, confirmed;  ///< it, in the search and afterwards
  std::string afterwards;
  std::string method;
};

/// A point of the table, and with what others it shares a colour.
struct ShownSetting {
  std::string name, group;
  Point at;
};

/// In the order in which they left; the chosen one has no group.
std::vector<ShownSetting> settings_of(const ShownChoice& shown) {
  const Records& tried = shown.tried;
  const auto left = static_cast<std::size_t>(std::ranges::find(tried.columns, "left", &ColumnInfo::key) -
                                             tried.columns.begin());
  const std::size_t measure = tried.column(shown.measure), held = tried.column("held_bytes"),
                    name = tried.column("setting");
  std::vector<ShownSetting> out;
  for (const std::vector<Value>& row : tried.rows) {
    const auto value = number(row[measure]), bytes = number(row[held]);
    if (!value || !bytes) continue;
    ShownSetting each{text(row[name]), "tried", {*bytes / (1 << 20), *value}};
    if (each.name == shown.setting)
      each = {each.name, "", {each.at.x, each.at.y, shown.found.low, shown.found.high}};
    else if (left < row.size())
      each.group = "left after " + text(row[left]);
    out.push_back(std::move(each));
  }
  std::ranges::stable_sort(out, [](const ShownSetting& a, const ShownSetting& b) {
    return a.group.empty() != b.group.empty() ? b.group.empty() : a.group < b.group;
  });
  return out;
}

Panel tried_panel(const ShownChoice& shown) {
  Chart chart{{.label = "held after the answer (MiB)"}, shown.axis, false};
  std::string before;
  int groups = -1;
  for (const ShownSetting& each : settings_of(shown)) {
    Series series{.label = each.name, .points = {each.at}};
    if (each.group.empty()) {
      series.policy = each.name;
      series.group = "chosen";
    } else {
      groups += each.group != before ? 1 : 0;
      before = series.group = each.group;
      series.colour = groups;
      series.weight = groups == 0 ? Weight::faint : Weight::plain;
    }
    chart.series.push_back(std::move(series));
  }
  return {"where it was found", std::move(chart)};
}

Panel luck_panel(const ShownChoice& shown) {
  const auto ran = std::ranges::count_if(
      shown.tried.rows,
      [at = shown.tried.column(shown.measure)](const auto& row) { return number(row[at]).has_value(); });
  Axis measure = shown.axis;
  measure.low = measure.high = std::nullopt;
  Chart chart{{.categories = {"best of " + std::to_string(ran), shown.afterwards}}, measure, false, true};
  Series series{.label = shown.setting, .policy = shown.setting, .group = "chosen"};
  series.points = {{0, shown.found.y, shown.found.low, shown.found.high},
                   {1, shown.confirmed.y, shown.confirmed.low, shown.confirmed.high}};
  chart.series.push_back(std::move(series));
  return {"found, and confirmed", std::move(chart)};
}

Figure figure_of(const ShownChoice& shown) {
  return {.name = "choice",
          .title = "What was tried, and what is left of the luck",
          .reading =
              "Left: a point is a setting, as far as it was asked. Right: the chosen one where it was "
              "found, which flatters it as the best of many, and where nothing was chosen: that is "
              "the number to believe.",
          .panels = {tried_panel(shown), luck_panel(shown)}};
}

/// Those that went furthest first, without the parameters in full, which `tables/tried.csv` has.
SortableTable table_for_people(const ShownChoice& shown) {
  Records out = shown.tried;
  if (std::ranges::count(out.columns, "prompts", &ColumnInfo::key) > 0)
    std::ranges::stable_sort(out.rows, std::ranges::greater(), [&](const std::vector<Value>& row) {
      return std::pair(number(row[out.column("prompts")]), number(row[out.column("kept")]));
    });
  const auto params = static_cast<std::ptrdiff_t>(out.column("params"));
  for (std::vector<Value>& row : out.rows) row.erase(row.begin() + params);
  out.columns.erase(out.columns.begin() + params);
  return table_of(out, "`tables/tried.csv`", out.rows.size());
}

void write_facts(Html& html, const std::vector<ChoiceFact>& facts) {
  const Html::Element list = html.element("dl");
  for (const ChoiceFact& fact : facts) {
    html.leaf("dt", fact.name);
    const Html::Element value = html.element("dd");
    if (fact.code)
      html.leaf("pre", fact.text, {{"tabindex", "0"}});
    else
      html.text(fact.text);
  }
}

std::string cap_text(const CacheCap& cap) {
  return cap.text + (cap.share > 0 ? " of the full one" : "");
}

std::string page_of(const ShownChoice& shown) {
  const Figure figure = figure_of(shown);
  return framed_page({"The best cache within " + shown.cap, shown.words, "", live_data({figure})},
                     [&](Html& html) {
                       write_facts(html, shown.facts);
                       { const Html::Element drawn = figure_element(html, figure, true); }
                       {
                         const Html::Element opened = asked(html, "tried", "What became of each setting?");
                         write_table(html, table_for_people(shown));
                       }
                       const Html::Element opened = asked(html, "method", "How was it found?");
                       paragraph(html, shown.method);
                     });
}

}  // namespace

std::string choice_page(const ChoiceRequest& request, const Choice& choice) {
  const bool judged = choice.found.of > 0;
  const auto point = [&](const KeptAnswers& of) {
    if (!judged) return Point{.y = of.kl};
    return Point{.y = of.of == 0 ? 0 : static_cast<double>(of.right) / static_cast<double>(of.of),
                 .low = of.share.low,
                 .high = of.share.high};
  };
  const Axis kept{.label = "answers of the full cache that it keeps", .low = 0, .high = 1, .percent = true},
      kl{.label = "KL divergence from the full cache (nats)"};
  return page_of(
      {.cap = cap_text(request.cap),
       .words = request.model + ", " + std::to_string(request.items.size()) + " prompts of " +
                request.workload + ", cut " + request.evaluation.cuts.front().text() +
                "; found by kvsim choose.",
       .facts = facts_of(request, choice),
       .tried = choice.tried,
       .measure = judged ? "kept" : "kl",
       .axis = judged ? kept : kl,
       .setting = choice.winner.policy.text,
       .found = point(choice.found),
       .confirmed = point(choice.answers),
       .afterwards = "unseen prompts",
       .method =
           "Settings were drawn by seed " + std::to_string(request.seed) +
           ": published systems, evictions with their parameters, allocations and representations. What "
           "does not fit the cap left by its `price`. The prompts were split before anything was looked at. "
           "On two of the first half a replay dropped what loses most of what is attended most (`screen`), "
           "where that is known to order policies as answers do. The rest answered the first half in rounds "
           "that halve the field: by answers that the full cache gives, then by KL divergence. The chosen "
           "one alone answered the other half. Intervals are Wilson's, of 95 %."});
}

std::string choice_page(const LossChoiceRequest& request, const LossChoice& choice) {
  const auto point = [](const ReplayedSetting& of) { return Point{.y = of.peak_loss.value().value_or(0)}; };
  return page_of({.cap = cap_text(request.cap),
                  .words = std::to_string(request.runs.size()) + " recorded runs, cut " + request.cut.text() +
                           "; found by kvsim choose.",
                  .facts = facts_of(request, choice),
                  .tried = choice.table,
                  .measure = "peak_loss",
                  .axis = {.label = "loss of what is attended most (peak loss)", .percent = true},
                  .setting = choice.confirmed.policy.text,
                  .found = point(choice.tried.front()),
                  .confirmed = point(choice.confirmed),
                  .afterwards = "other runs",
                  .method = "Settings were drawn by seed " + std::to_string(request.seed) +
                            " and replayed on half of the runs. The one that loses least there was replayed "
                            "on the others."});
}

}  // namespace kvsim::analysis
