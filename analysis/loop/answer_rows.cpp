#include "analysis/loop/answer_rows.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace kvsim::analysis {
namespace {

using sim::StreamOutcome;
using sim::TokenMeasures;
using Number = std::optional<double>;

/// Everything that a row is made of.
struct Answer {
  const AnswerItem& item;
  const sim::LoopRequest& request;
  const sim::LoopOutcome& outcome;
  const sim::Cell& asked;
  const sim::LoopCell& cell;
  std::size_t mode = 0;

  sim::LoopMode loop_mode() const { return request.modes[mode]; }
  bool teacher() const { return loop_mode() == sim::LoopMode::teacher; }
  const StreamOutcome* stream() const { return cell.skipped.empty() ? &cell.modes[mode] : nullptr; }
  const StreamOutcome& reference() const { return outcome.references[cell.first_reference + mode]; }
};

/// Over the tokens of the answer, in teacher mode.
template <class Get>
std::vector<double> each(const Answer& a, Get get) {
  std::vector<double> out;
  if (a.teacher() && a.stream() != nullptr)
    for (const TokenMeasures& at : a.stream()->measures) out.push_back(get(at));
  return out;
}

Number mean(const std::vector<double>& values) {
  if (values.empty()) return {};
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The value that a share of all values does not exceed (nearest rank).
Number quantile(std::vector<double> values, double q) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

std::vector<double> kl(const Answer& a) {
  return each(a, [](const TokenMeasures& at) { return at.kl; });
}

/// Tokens that agree with the full cache's before the first that does not; greedy mode.
std::optional<std::uint64_t> agreement(const Answer& a) {
  if (a.teacher() || a.stream() == nullptr) return {};
  const std::vector<std::int32_t>&mine = a.stream()->tokens, &full = a.reference().tokens;
  const std::size_t n = std::min(mine.size(), full.size());
  return static_cast<std::uint64_t>(
      std::mismatch(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(n), full.begin()).first -
      mine.begin());
}

bool judged(const Answer& a) {
  return !a.teacher() && a.item.text && a.item.right && !a.item.answers.empty();
}

Value right(const Answer& a, const StreamOutcome* stream) {
  if (!judged(a) || stream == nullptr) return {};
  return std::uint64_t{a.item.right(a.item.text(stream->tokens)) ? 1U : 0U};
}

Value contains(const Answer& a) {
  if (!judged(a) || a.stream() == nullptr) return {};
  const std::string text = a.item.text(a.stream()->tokens);
  return std::uint64_t{std::any_of(a.item.answers.begin(), a.item.answers.end(),
                                   [&](const std::string& answer) {
                                     const std::size_t begin = answer.find_first_not_of(' ');
                                     return begin != std::string::npos &&
                                            text.find(answer.substr(begin)) != std::string::npos;
                                   })
                           ? 1U
                           : 0U};
}

/// Entries that were resident while tokens were fed, as a share of those of the full cache.
Number entry_steps(const Answer& a) {
  if (a.stream() == nullptr) return {};
  const auto sum = [](const std::vector<std::uint64_t>& n) {
    return static_cast<double>(std::accumulate(n.begin(), n.end(), std::uint64_t{0}));
  };
  const std::vector<std::uint64_t>& mine = a.stream()->resident;
  std::vector<std::uint64_t> full = a.reference().resident;
  full.resize(std::min(full.size(), mine.size()));
  return sum({mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(full.size())}) / sum(full);
}

struct Column {
  const char* key;
  const char* unit;
  const char* description;
  Value (*get)(const Answer&);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"item", "", "prompt of the workload, or the prompt's file",
       [](const Answer& a) { return Value(a.item.item); }},
      {"workload", "", "kind of prompt; empty: not known",
       [](const Answer& a) { return Value(a.item.workload); }},
      {"model", "", "folder of the checkpoint", [](const Answer& a) { return Value(a.item.model); }},
      {"policy", "", "composition, as a table shows it",
       [](const Answer& a) { return Value(a.asked.composition.name); }},
      {"params", "", "composition with every effective parameter",
       [](const Answer& a) { return Value(a.asked.composition.params); }},
      {"budget", "", "budget, as given", [](const Answer& a) { return Value(a.asked.budget.text); }},
      {"budget_tokens", "tokens per lane", "what the budget comes to for this prompt",
       [](const Answer& a) { return a.cell.skipped.empty() ? Value(a.cell.budget_tokens) : Value(); }},
      {"cut", "", "where the prompt ends for policies: prompt, question, or so many tokens",
       [](const Answer& a) { return Value(a.outcome.cut); }},
      {"turn", "index", "question of the conversation",
       [](const Answer&) { return Value(std::uint64_t{0}); }},
      {"seed", "", "of random policies", [](const Answer& a) { return Value(a.request.seed); }},
      {"mode", "",
       "teacher: every cell is fed the same tokens, those of the expected answer or of the full cache; "
       "greedy: what "
       "it generates itself",
       [](const Answer& a) { return Value(std::string(sim::loop_mode_name(a.loop_mode()))); }},
      {"prefill", "", "dense: the prompt is processed once with full attention, then compressed",
       [](const Answer&) { return Value(std::string("dense")); }},
      {"positions", "", "text: tokens keep the rotary positions that they have in the text",
       [](const Answer&) { return Value(std::string("text")); }},
      {"right", "0 or 1", "whether the answer is right by the workload's own rule; greedy mode",
       [](const Answer& a) { return right(a, a.stream()); }},
      {"right_full", "0 or 1", "the same of the full cache",
       [](const Answer& a) { return right(a, &a.reference()); }},
      {"contains", "0 or 1", "whether one of the expected answers occurs in what was generated; greedy mode",
       contains},
      {"agreement", "tokens",
       "generated tokens that equal the full cache's before the first that does not; greedy mode",
       [](const Answer& a) { return value_of(agreement(a)); }},
      {"divergence_margin", "logits",
       "how far the full cache's most probable token leads where the two part; null: they do not; greedy "
       "mode",
       [](const Answer& a) {
         const auto n = agreement(a);
         if (!n || *n >= a.reference().margins.size() || *n >= a.stream()->tokens.size()) return Value();
         return Value(a.reference().margins[*n]);
       }},
      {"kl", "nats", "KL(full || cell) of the next token, mean over the tokens of the answer; teacher mode",
       [](const Answer& a) { return value_of(mean(kl(a))); }},
      {"kl_median", "nats", "the same, median",
       [](const Answer& a) { return value_of(quantile(kl(a), 0.5)); }},
      {"kl_p90", "nats", "the same, 90 %", [](const Answer& a) { return value_of(quantile(kl(a), 0.9)); }},
      {"kl_p99", "nats", "the same, 99 %", [](const Answer& a) { return value_of(quantile(kl(a), 0.99)); }},
      {"kl_max", "nats", "the same, largest", [](const Answer& a) { return value_of(quantile(kl(a), 1)); }},
      {"same_top", "share",
       "tokens at which cell and full cache find the same token most probable; teacher mode",
       [](const Answer& a) {
         return value_of(mean(each(a, [](const TokenMeasures& at) { return at.same_top ? 1.0 : 0.0; })));
       }},
      {"log_p", "nats", "log-likelihood of the tokens that are fed; teacher mode",
       [](const Answer& a) {
         const std::vector<double> logs = each(a, [](const TokenMeasures& at) { return at.log_p; });
         return logs.empty() ? Value() : Value(std::accumulate(logs.begin(), logs.end(), 0.0));
       }},
      {"delta_log_p", "nats", "log p of a fed token minus the full cache's, mean over tokens; teacher mode",
       [](const Answer& a) {
         return value_of(mean(each(a, [](const TokenMeasures& at) { return at.log_p - at.log_p_full; })));
       }},
      {"rms_delta_p", "share", "root mean square of p of a fed token minus the full cache's; teacher mode",
       [](const Answer& a) {
         const Number square = mean(each(a, [](const TokenMeasures& at) {
           const double d = std::exp(at.log_p) - std::exp(at.log_p_full);
           return d * d;
         }));
         return square ? Value(std::sqrt(*square)) : Value();
       }},
      {"rank", "tokens", "tokens that the cell finds more probable than the fed one, mean; teacher mode",
       [](const Answer& a) {
         return value_of(mean(each(a, [](const TokenMeasures& at) { return static_cast<double>(at.rank); })));
       }},
      {"tokens", "tokens", "tokens of the answer, fed or generated",
       [](const Answer& a) {
         return a.stream() == nullptr ? Value() : Value(std::uint64_t{a.stream()->tokens.size()});
       }},
      {"kept_tokens", "tokens per lane", "positions held after the cut, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : Value(a.cell.kept_tokens); }},
      {"held_tokens", "tokens per lane", "positions held at the end, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : Value(a.stream()->held_tokens); }},
      {"entry_steps", "share", "entries held, summed over the steps, of those of the full cache",
       [](const Answer& a) { return value_of(entry_steps(a)); }},
      {"evidence_held", "share", "of the evidence tokens, those held at the end, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : value_of(a.stream()->evidence_held); }},
      {"evidence_nowhere", "share", "of the evidence tokens, those that no lane holds then",
       [](const Answer& a) {
         return a.stream() == nullptr ? Value() : value_of(a.stream()->evidence_nowhere);
       }},
      {"generated", "", "what the cell generated; greedy mode",
       [](const Answer& a) {
         if (a.teacher() || a.stream() == nullptr || !a.item.text) return Value();
         return Value(a.item.text(a.stream()->tokens));
       }},
      {"skipped", "", "why the cell was not run; empty: it was",
       [](const Answer& a) { return Value(a.cell.skipped); }},
  };
  return all;
}

}  // namespace

const std::vector<ColumnInfo>& answer_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out;
    for (const Column& column : columns()) out.push_back({column.key, column.unit, column.description});
    return out;
  }();
  return all;
}

std::vector<std::vector<Value>> answer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                            const sim::LoopOutcome& outcome) {
  std::vector<std::vector<Value>> rows;
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell)
    for (std::size_t mode = 0; mode < request.modes.size(); ++mode) {
      const Answer answer{item, request, outcome, request.cells[cell], outcome.cells[cell], mode};
      std::vector<Value>& row = rows.emplace_back();
      for (const Column& column : columns()) row.push_back(column.get(answer));
    }
  return rows;
}

namespace {

/// A mean over those rows of a group that have the number.
struct Mean {
  double sum = 0;
  std::uint64_t n = 0;

  void add(const Value& value) {
    if (const auto x = number(value)) {
      sum += *x;
      ++n;
    }
  }
  Value value() const { return n == 0 ? Value() : Value(sum / static_cast<double>(n)); }
};

const std::vector<ColumnInfo> kKeys = {
    {"cut", "", ""}, {"budget", "", ""}, {"policy", "", ""}, {"params", "", ""}};
const std::vector<ColumnInfo> kMeans = {
    {"right", "share", "of the items, those answered right"},
    {"right_full", "share", "of the items, those that the full cache answers right"},
    {"contains", "share", "of the items, those whose answer occurs in what was generated"},
    {"agreement", "tokens", "generated tokens before the first that differs from the full cache's, mean"},
    {"kl", "nats", "KL(full || cell), mean over tokens and items"},
    {"same_top", "share", "of the tokens, those at which both find the same most probable, mean over items"},
    {"evidence_held", "share", "of the evidence tokens, those held at the end, mean over lanes and items"},
    {"held_tokens", "tokens per lane", "positions held at the end, mean"},
};

}  // namespace

Records answer_summary(const Records& rows) {
  Records out;
  out.columns = kKeys;
  out.columns.push_back({"items", "items", "prompts that were answered"});
  out.columns.insert(out.columns.end(), kMeans.begin(), kMeans.end());
  struct Group {
    std::vector<Value> key;
    std::vector<std::string> items{};
    std::vector<Mean> means = std::vector<Mean>(kMeans.size());
  };
  std::vector<Group> groups;
  const std::size_t item = rows.column("item"), skipped = rows.column("skipped");
  for (const std::vector<Value>& row : rows.rows) {
    if (!text(row[skipped]).empty()) continue;
    std::vector<Value> key;
    for (const ColumnInfo& column : kKeys) key.push_back(row[rows.column(column.key)]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.key == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{key});
    const std::string& name = text(row[item]);
    if (std::find(group->items.begin(), group->items.end(), name) == group->items.end())
      group->items.push_back(name);
    for (std::size_t i = 0; i < kMeans.size(); ++i) group->means[i].add(row[rows.column(kMeans[i].key)]);
  }
  for (const Group& group : groups) {
    std::vector<Value>& row = out.rows.emplace_back(group.key);
    row.emplace_back(std::uint64_t{group.items.size()});
    for (const Mean& mean : group.means) row.push_back(mean.value());
  }
  return out;
}

}  // namespace kvsim::analysis
