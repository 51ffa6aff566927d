#include "analysis/choice/choose_by_losses.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/choice/candidates.hpp"
#include "analysis/choice/choice_report.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/split.hpp"
#include "sim/replay/budget.hpp"

namespace kvsim::analysis {
namespace {

class LossSearch {
 public:
  LossSearch(const LossChoiceRequest& request, Progress& progress) : request_(request), progress_(progress) {}

  LossChoice choose(const policy::Registry& registry) {
    LossChoice out;
    // One in two has a representation, which is left out.
    for (AskedPolicy& policy : draw_settings(registry, 2 * request_.settings, request_.seed, false))
      if (!policy.composition.representation && out.tried.size() < request_.settings)
        out.tried.push_back({std::move(policy)});
    const Split split = split_by_chance(request_.runs.size(), request_.seed);
    out.chose = split.search.size();
    out.confirm = split.confirm.size();
    for (const std::size_t run : split.search) replay(*request_.runs[run], out.tried);
    std::stable_sort(out.tried.begin(), out.tried.end(), [](const auto& a, const auto& b) {
      return !a.why.empty() || !b.why.empty() ? a.why.empty() > b.why.empty()
                                              : *a.peak_loss.value() < *b.peak_loss.value();
    });
    if (!out.tried.front().why.empty())
      usage_error("no setting runs: " + out.tried.front().why, "--memory, --share");
    std::vector<ReplayedSetting> winner{{out.tried.front().policy}};
    for (const std::size_t run : split.confirm) {
      replay(*request_.runs[run], winner);
      out.full_bytes += bytes_of(*request_.runs[run]) / static_cast<double>(out.confirm);
    }
    if (!winner.front().why.empty()) input_error("does not run on those that confirm: " + winner.front().why);
    out.confirmed = winner.front();
    out.least_share = least_share_;
    return out;
  }

 private:
  static double bytes_of(const trace::Sequence& run) { return static_cast<double>(sim::prompt_bytes(run)); }

  void replay(const trace::Sequence& run, std::vector<ReplayedSetting>& settings) {
    const CacheCap& cap = request_.cap;
    sim::Budget budget;
    budget.unit = sim::Budget::Unit::bytes;
    budget.value = cap.bytes > 0 ? static_cast<double>(cap.bytes) : std::floor(cap.share * bytes_of(run));
    budget.text = cap.text;
    sim::Request request;
    for (const ReplayedSetting& setting : settings)
      request.cells.push_back({setting.policy.composition, budget});
    request.seed = request_.seed;
    request.threads = request_.threads;
    const sim::Outcome outcome = sim::replay(run, request, progress_);
    const std::vector<Row> rows = make_rows("", request, outcome, Scope::all);
    for (std::size_t i = 0; i < rows.size(); ++i)
      take(rows[i], static_cast<double>(run.prompt_length()), settings[i]);
    least_share_ = std::min(least_share_, budget.value / bytes_of(run));
  }

  static void take(const Row& row, double tokens, ReplayedSetting& setting) {
    if (!setting.why.empty()) return;
    setting.why = first_line(row.skipped);  // not what to do about it
    if (!setting.why.empty()) return;
    const auto loss = row["peak_loss"], bytes = row["held_bytes"];
    if (!loss)
      input_error(
          "a run has no step behind the cut that attends a token enough for a loss to be measured (peak_loss)",
          "--trace", "Record an answer, with --max-new-tokens.");
    if (row["kept_tokens"].value_or(0) > row.budget_tokens.value_or(0) + 0.5) {
      setting.why = "holds more than the cap";
      return;
    }
    setting.peak_loss.add(*loss);
    if (bytes) setting.held_bytes.add(*bytes);
    if (row.budget_tokens) setting.budget_share.add(std::min(1.0, *row.budget_tokens / tokens));
  }

  const LossChoiceRequest& request_;
  Progress& progress_;
  double least_share_ = 1;
};

Records table_of(const std::vector<ReplayedSetting>& settings) {
  Records table{{{"setting", "", "composition"},
                 {"params", "", "the same with every effective parameter"},
                 {"why", "", "why it cannot run; null: it does"},
                 {"peak_loss", "share", "mean over the runs"},
                 {"held_bytes", "bytes", "keys and values held at the end, mean over the runs"}},
                {}};
  for (const ReplayedSetting& setting : settings)
    table.rows.push_back({setting.policy.text, setting.policy.composition.params, text_or_none(setting.why),
                          value_of(setting.peak_loss.value()), value_of(setting.held_bytes.value())});
  return table;
}

}  // namespace

LossChoice choose_by_losses(const LossChoiceRequest& request, const policy::Registry& registry,
                            Progress& progress) {
  if (request.runs.size() < 2)
    usage_error("a choice takes at least two recorded runs, of which half confirm it", "--trace",
                "Name more files, or sequences of one with --sequence all.");
  if (!nothing_there(request.folder))
    usage_error("holds something else", request.folder, "Choose another folder with -o.");
  LossChoice out = LossSearch(request, progress).choose(registry);
  StudyFolder folder(request.folder);
  out.table = table_of(out.tried);
  folder.write("tables/tried.csv", csv_text(out.table));
  folder.write("tables/confirmed.csv", csv_text(table_of({out.confirmed})));
  folder.write(kChoicePage, choice_page(request, out));
  return out;
}

}  // namespace kvsim::analysis
