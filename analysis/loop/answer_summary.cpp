// Means over items with intervals, and the order of policies where the full cache knows the answers.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "analysis/loop/part_rows.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// Rows that differ in the place are not compared with each other.
const std::vector<ColumnInfo> kPlace = {{"workload", "", ""}, {"cut", "", ""},       {"turns", "", ""},
                                        {"turn", "", ""},     {"positions", "", ""}, {"budget", "", ""}};
const std::vector<ColumnInfo> kPolicy = {{"policy", "", ""}, {"params", "", ""}, {"prefill", "", ""}};

struct Averaged {
  ColumnInfo column;
  bool interval = false;
};
const std::vector<Averaged> kAlways = {
    {{"right", "share", "of the items, those answered right"}, true},
    {{"right_full", "share", "of the items, those that the full cache answers right"}},
    {{"kept", "share", "of the items that the full cache answers right, those answered right"}, true},
    {{"agreement", "tokens", "generated tokens before the first that differs from the full cache's, mean"}},
    {{"kl", "nats", "KL(full || cell), mean over tokens and items"}, true},
    {{"same_top", "share",
      "of the tokens, those at which both find the same most probable, mean over items"}},
    {{"evidence_held", "share", "of the evidence tokens, those held at the end, mean over lanes and items"}},
    {{"held_bytes", "bytes", "keys and values held at the end, mean over items"}},
};

/// Of prompts of which no answer is right or wrong.
const Averaged kRouge{{"rouge_l", "share", "ROUGE-L against the full cache's answer, mean over items"}, true};

/// Of rows of which one has them: cells that read a part of what is held, prompts in chunks.
const std::vector<Averaged> kSometimes = {
    {{"read_bytes", "bytes per step", "what a step reads, index included, mean over items"}},
    {{"chunk_peak_tokens", "tokens per lane",
      "the most positions that a lane held at once while the prompt came in chunks, mean over items"}},
};

const std::vector<Averaged> kOfDrafts = {
    {{"tokens_per_round", "tokens", "that come of a verification, mean over rounds and items"}, true},
    {{"accepted", "tokens", "drafted tokens that a round accepts, mean over rounds and items"}},
    {{"overlap", "share", "sum of min(p, q), mean over tested tokens and items"}, true},
    {{"accepted_share", "share", "of the tested tokens, those that are accepted, mean over items"}},
    {{"draft_bytes", "bytes per step", "what a drafting step reads, index included, mean over items"}},
    {{"draft_share", "share", "of what the full cache would read, mean over items"}},
};

/// What is averaged of these rows: what is read, where a selection reads a part, and losses, where they stand
/// beside the answers.
std::vector<Averaged> averaged(const Records& rows) {
  std::vector<Averaged> out = kAlways;
  if (full_answers(rows).empty()) out.push_back(kRouge);
  for (const Averaged& sometimes : kSometimes) {
    // What is read is told where a selection, which has an index, reads a part.
    const std::string key = sometimes.column.key == "read_bytes" ? "index_bytes" : sometimes.column.key;
    if (has_column(rows, key) && std::ranges::any_of(rows.rows, [at = rows.column(key)](const auto& row) {
          return number(row[at]).has_value();
        }))
      out.push_back(sometimes);
  }
  for (const std::vector<ColumnInfo>* some : {&assembly_columns(), &loss_columns()})
    for (const ColumnInfo& asked : *some)
      if (has_column(rows, asked.key)) out.push_back({asked, false});
  return out;
}

std::vector<ColumnInfo> summary_columns(const std::vector<Averaged>& means) {
  std::vector<ColumnInfo> out = kPlace;
  out.insert(out.end(), kPolicy.begin(), kPolicy.end());
  out.push_back({"items", "items", "prompts that were answered"});
  out.push_back(
      {"without", "", "prompts that others answered and this one did not: its means are of the rest"});
  for (const auto& [column, interval] : means) {
    out.push_back(column);
    if (!interval) continue;
    out.push_back({column.key + "_low", column.unit,
                   "low end of its 95 % bootstrap interval over items; null: fewer than two"});
    out.push_back({column.key + "_high", column.unit, "its high end"});
  }
  return out;
}

std::vector<Value> fields(const Records& rows, const std::vector<Value>& row,
                          const std::vector<ColumnInfo>& columns) {
  std::vector<Value> out;
  for (const ColumnInfo& column : columns) out.push_back(row[rows.column(column.key)]);
  return out;
}

/// The prompts of one workload, and the draws that all its policies, cuts and budgets share.
struct Items {
  std::map<std::string, std::size_t> number{};  // in order of appearance
  std::optional<Resamples> resamples{};

  std::size_t of(const std::string& item) { return number.try_emplace(item, number.size()).first->second; }
};

/// One policy at one place.
struct Group {
  std::size_t place = 0;
  std::vector<Value> place_key, policy_key;
  std::map<std::size_t, std::vector<RunningMean>> means{};  // by item; one per Groups::averaged

  std::optional<double> mean(std::size_t metric) const {
    RunningMean all;
    for (const auto& [item, of_item] : means)
      if (const auto value = of_item[metric].value()) all.add(*value);
    return all.value();
  }

  std::optional<Interval> interval(std::size_t metric, Items& items) const {
    TraceSet set(items.number.size(), false);
    std::vector<double> values(items.number.size(), 0.0);
    for (const auto& [item, of_item] : means)
      if (const auto value = of_item[metric].value()) {
        set[item] = true;
        values[item] = *value;
      }
    const StatisticsOptions defaults;
    if (!items.resamples)
      items.resamples.emplace(std::vector<std::string>(set.size(), text(place_key[0])), defaults.resamples,
                              defaults.seed);
    if (!items.resamples->has_intervals(set)) return {};
    std::vector<double> samples = items.resamples->means(set, values);
    return percentile_interval(samples, defaults.confidence);
  }
};

/// In order of places, and at each of appearance.
struct Groups {
  std::vector<Averaged> averaged;
  std::vector<Group> groups{};
  std::map<std::string, Items> items{};              // by workload
  std::vector<std::vector<std::string>> items_at{};  // by place, in order of appearance: answered by any

  Groups(const Records& rows, std::vector<Averaged> of) : averaged(std::move(of)) {
    std::map<std::vector<Value>, std::size_t> places;
    std::map<std::pair<std::size_t, std::vector<Value>>, std::size_t> known;
    const std::size_t skipped = rows.column("skipped"), workload = rows.column("workload");
    const std::size_t item = rows.column("item");
    for (const std::vector<Value>& row : rows.rows) {
      if (!text(row[skipped]).empty()) continue;
      const std::vector<Value> place = fields(rows, row, kPlace), policy = fields(rows, row, kPolicy);
      const std::size_t at = places.try_emplace(place, places.size()).first->second;
      items_at.resize(places.size());
      add_once(items_at[at], text(row[item]));
      const auto [group, fresh] = known.try_emplace({at, policy}, groups.size());
      if (fresh) groups.push_back({at, place, policy});
      std::vector<RunningMean>& means =
          groups[group->second].means[items[text(row[workload])].of(text(row[item]))];
      means.resize(averaged.size());
      for (std::size_t i = 0; i < averaged.size(); ++i)
        if (const auto value = number(row[rows.column(averaged[i].column.key)])) means[i].add(*value);
    }
    std::ranges::stable_sort(groups, [](const Group& a, const Group& b) { return a.place < b.place; });
  }

  /// The items at the group's place that it has no answer to, as a list.
  std::string without(const Group& group) const {
    std::vector<std::string> all = items_at[group.place];
    const Items& of = items.at(text(group.place_key[0]));
    std::erase_if(all, [&](const std::string& item) { return group.means.contains(of.number.at(item)); });
    return joined(all);
  }

  /// Best first at every place whose questions the full cache answers, or enough of them to judge by `kept`;
  /// what is undefined comes last.
  void rank(const std::vector<FullAnswers>& full, double least_full) {
    const auto metric = [&](const char* key) {
      return static_cast<std::size_t>(
          std::ranges::find_if(averaged, [&](const Averaged& each) { return each.column.key == key; }) -
          averaged.begin());
    };
    using Order = std::tuple<std::size_t, double, double>;
    constexpr double kLast = std::numeric_limits<double>::infinity();
    std::vector<std::pair<Order, Group>> ordered;
    for (Group& group : groups) {
      Order order{group.place, 0, 0};
      if (const char* by = ranked_by(full, text(group.place_key[0]), text(group.place_key[1]), least_full)) {
        const auto share = group.mean(metric(by));
        order = {group.place, share ? -*share : kLast, group.mean(metric("kl")).value_or(kLast)};
      }
      ordered.emplace_back(order, std::move(group));
    }
    std::ranges::stable_sort(ordered, [](const auto& a, const auto& b) { return a.first < b.first; });
    groups.clear();
    for (auto& [order, group] : ordered) groups.push_back(std::move(group));
  }
};

Records summary_of(Groups& all) {
  Records out;
  out.columns = summary_columns(all.averaged);
  for (const Group& group : all.groups) {
    std::vector<Value>& row = out.rows.emplace_back(group.place_key);
    row.insert(row.end(), group.policy_key.begin(), group.policy_key.end());
    row.emplace_back(std::uint64_t{group.means.size()});
    const std::string without = all.without(group);
    row.push_back(without.empty() ? Value() : Value(without));
    for (std::size_t i = 0; i < all.averaged.size(); ++i) {
      row.push_back(value_of(group.mean(i)));
      if (!all.averaged[i].interval) continue;
      const auto interval = group.interval(i, all.items.at(text(group.place_key[0])));
      row.push_back(interval ? Value(interval->low) : Value());
      row.push_back(interval ? Value(interval->high) : Value());
    }
  }
  return out;
}

}  // namespace

Records answer_summary(const Records& rows, double least_full) {
  Groups all(rows, averaged(rows));
  all.rank(full_answers(rows), least_full);
  return summary_of(all);
}

Records draft_summary(const Records& rows) {
  Groups all(rows, kOfDrafts);
  return summary_of(all);
}

std::vector<std::string> unranked_notes(const Records& rows, double least_full) {
  std::vector<std::string> notes;
  const auto percent = [](double share) { return rounded_text(100 * share, 0) + " %"; };
  for (const FullAnswers& answers : full_answers(rows)) {
    if (answers.reaches(least_full)) continue;
    notes.push_back((answers.workload.empty() ? "prompts of no workload" : "workload " + answers.workload) +
                    ", cut " + answers.cut + ": the full cache answers " + std::to_string(answers.right) +
                    " of " + std::to_string(answers.asked) + " (" + percent(answers.share()) +
                    "): policies are " +
                    (answers.enough_kept() ? "in order of kept, over those alone" : "not ranked"));
  }
  if (!notes.empty())
    notes.push_back(
        "Below " + percent(least_full) +
        " right, what a policy loses is not told from what the model does not know; kept, over what "
        "the full cache answers, ranks from " +
        std::to_string(kLeastAnswered) + " prompts on. Chance level not known.");
  return notes;
}

}  // namespace kvsim::analysis
