#include "analysis/cost/cost_fit.hpp"

#include <algorithm>
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/declared_columns.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::uint64_t kMostSequences = std::uint64_t{1} << 24;

/// The largest number from `low` to `high` that passes. `low` passes; a number is taken to pass when a larger
/// one does.
template <class Passes>
std::uint64_t largest(std::uint64_t low, std::uint64_t high, Passes passes) {
  // Doubling keeps what is tried near the answer: far beyond it, sizes would not fit 64 bits.
  while (low < high && passes(std::min(high, 2 * low))) low = std::min(high, 2 * low);
  if (low == high) return high;
  high = std::min(high, 2 * low);
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (passes(middle) ? low : high) = middle;
  }
  return low;
}

/// One policy under the study's first workload, at any budget and batch.
class Trial {
 public:
  Trial(const CostStudy& study, const CostLimits& limits, const policy::Composition& policy)
      : study_(study), limits_(limits), policy_(policy) {}

  CostFit at(const sim::Budget& budget) const {
    CostFit fit = fresh();
    fit.row.budget = budget.text;
    judge(fit, budget_tokens(budget, study_.model, study_.serving.layout, policy_, prompt(), generate()));
    return fit;
  }
  CostFit at_its_own_size() const {
    CostFit fit = fresh();
    fit.own_size = true;
    judge(fit, prompt() + generate());
    return fit;
  }
  CostFit at_the_largest() const {
    CostFit fit = fresh();
    const std::uint64_t least = policy_.floor(), most = prompt() + generate();
    const auto meets = [&](std::uint64_t budget) { return exceeded(budget, batch()).empty(); };
    const std::uint64_t found = meets(least) ? largest(least, most, meets) : least;
    judge(fit, found);
    if (fit.meets && found < most) fit.limit = exceeded(found + 1, batch());
    return fit;
  }

 private:
  std::uint64_t prompt() const { return study_.prompts.front(); }
  std::uint64_t generate() const { return study_.generates.front(); }
  std::uint64_t batch() const { return study_.batches.front(); }

  CostFit fresh() const {
    CostFit fit;
    fit.row.model = study_.model.name;
    fit.row.machine = study_.machine.name;
    fit.row.policy = policy_.name;
    fit.row.params = policy_.params;
    fit.row.prompt = prompt();
    fit.row.generate = generate();
    fit.row.batch = batch();
    return fit;
  }

  cost::Estimate estimate(std::uint64_t budget, std::uint64_t batch) const {
    cost::Serving serving = study_.serving;
    serving.prompt = prompt();
    serving.generate = generate();
    serving.batch = batch;
    return cost::estimate(study_.model, study_.machine, serving, policy_, budget);
  }
  std::string exceeded(std::uint64_t budget, std::uint64_t batch) const {
    return limits_.exceeded_by(estimate(budget, batch));
  }

  void judge(CostFit& fit, std::uint64_t budget) const {
    fit.row.estimate = estimate(budget, batch());
    fit.limit = limits_.exceeded_by(*fit.row.estimate);
    fit.meets = fit.limit.empty();
    const auto meets = [&](std::uint64_t sequences) { return exceeded(budget, sequences).empty(); };
    fit.row.largest_batch = meets(1) ? largest(1, kMostSequences, meets) : 0;
    if (*fit.row.largest_batch > 0)
      fit.largest_batch_tokens_per_second = estimate(budget, *fit.row.largest_batch).time.tokens_per_second;
  }

  const CostStudy& study_;
  const CostLimits& limits_;
  const policy::Composition& policy_;
};

std::vector<CostFit> fits_of(const CostStudy& study, const CostLimits& limits,
                             const policy::Composition& policy) {
  const Trial trial(study, limits, policy);
  if (policy.eviction.spec->own_budget()) return {trial.at_its_own_size()};
  if (study.budgets.empty()) return {trial.at_the_largest()};
  std::vector<CostFit> out;
  for (const sim::Budget& budget : study.budgets) out.push_back(trial.at(budget));
  return out;
}

const Columns<CostFit>& fit_columns() {
  const auto row = [](auto CostRow::*what) { return [what](const CostFit& f) { return f.row.*what; }; };
  const auto estimate = [](auto read) {
    return [read](const CostFit& f) { return std::invoke(read, *f.row.estimate); };
  };
  const auto seconds = [](double cost::Latency::*what) {
    return [what](const CostFit& f) { return f.row.estimate->time.*what; };
  };
  using cost::Estimate, cost::Latency;
  static const Columns<CostFit> all = {
      {"model", "", "model, by name or file", row(&CostRow::model)},
      {"machine", "", "machine, by name or file", row(&CostRow::machine)},
      {"policy", "", "composition, as a table shows it", row(&CostRow::policy)},
      {"params", "", "composition with every effective parameter", row(&CostRow::params)},
      {"budget", "", "budget, as given; null: it was looked for, or the policy has a size of its own",
       [](const CostFit& f) { return text_or_none(f.row.budget); }},
      {"budget_tokens", "tokens per lane",
       "as given, or the largest that meets the limits; the least if none does", estimate(&Estimate::budget)},
      {"prompt", "tokens", "of every sequence", row(&CostRow::prompt)},
      {"generate", "tokens", "generated by every sequence", row(&CostRow::generate)},
      {"batch", "sequences", "served at once", row(&CostRow::batch)},
      {"meets", "", "yes or no: all limits, at this budget and batch",
       [](const CostFit& f) { return f.meets ? "yes" : "no"; }},
      {"limit", "", "memory, ttft or tpot: what is exceeded, or would be by one token of budget more",
       [](const CostFit& f) { return text_or_none(f.limit); }},
      {"peak_bytes", "bytes", "per device", estimate([](const Estimate& e) { return e.peak(); })},
      {"ttft_seconds", "s", "time to the first token", seconds(&Latency::first_token)},
      {"tpot_seconds", "s", "time per output token after the first, mean", seconds(&Latency::per_token)},
      {"tokens_per_second", "tokens/s", "generated by the whole batch", seconds(&Latency::tokens_per_second)},
      {"largest_batch", "sequences", "that meets all limits at this budget", row(&CostRow::largest_batch)},
      {"largest_batch_tokens_per_second", "tokens/s", "what it generates",
       &CostFit::largest_batch_tokens_per_second}};
  return all;
}

/// What stands in the way, for people.
std::string verdict(const CostFit& fit) {
  if (!fit.meets) return "no: " + fit.limit;
  return fit.limit.empty() ? "yes" : "up to " + fit.limit;
}

}  // namespace

std::string CostLimits::exceeded_by(const cost::Estimate& estimate) const {
  if (estimate.peak() > memory || !estimate.tiers_fit) return "memory";
  if (first_token && estimate.time.first_token > *first_token) return "ttft";
  if (per_token && estimate.time.per_token > *per_token) return "tpot";
  return {};
}

std::vector<CostFit> cost_fits(const CostStudy& study, const CostLimits& limits) {
  std::vector<CostFit> out;
  for (const policy::Composition& policy : study.policies) {
    std::vector<CostFit> fits = fits_of(study, limits, policy);
    std::move(fits.begin(), fits.end(), std::back_inserter(out));
  }
  return out;
}

Records fit_records(const std::vector<CostFit>& fits) {
  return table_of(fit_columns(), fits);
}

void write_fit_table(std::ostream& out, const std::vector<std::string>& head,
                     const std::vector<CostFit>& fits, const std::vector<std::string>& notes) {
  std::vector<CostRow> rows;
  for (const CostFit& fit : fits) rows.push_back(fit.row);
  const std::map<std::string, std::string> labels = cost_labels(rows);
  TextTable table;
  table.add_column("policy", Align::left);
  table.add_column("budget tokens", Align::right);
  table.add_column("of prompt %", Align::point);
  table.add_column("fits", Align::left);
  table.add_column("peak GiB", Align::point);
  table.add_column("TTFT s", Align::point);
  table.add_column("TPOT ms", Align::point);
  table.add_column("largest batch", Align::right);
  table.add_column("its tokens/s", Align::point);
  for (const CostFit& fit : fits) {
    const cost::Estimate& e = *fit.row.estimate;
    const double share = 100 * static_cast<double>(e.budget) / static_cast<double>(fit.row.prompt);
    table.add_row(
        {labels.at(fit.row.params), fit.own_size ? "all" : std::to_string(e.budget),
         fit.own_size ? "-" : people_text(share), verdict(fit), people_text(gib(e.peak())),
         people_text(e.time.first_token), people_text(1e3 * e.time.per_token),
         std::to_string(*fit.row.largest_batch),
         fit.largest_batch_tokens_per_second ? people_text(*fit.largest_batch_tokens_per_second) : "-"});
  }
  for (const std::string& line : head) out << line << '\n';
  out << '\n';
  table.print(out);
  out << '\n';
  if (std::ranges::any_of(fits, [](const CostFit& fit) { return fit.meets && !fit.limit.empty(); }))
    out << "up to: one token of budget more exceeds it\n";
  for (const std::string& line : notes) out << line << '\n';
}

}  // namespace kvsim::analysis
