#include "analysis/requests/compression_rows.hpp"

#include <algorithm>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/requests/cache_capacity.hpp"
#include "analysis/requests/compressed_model.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::analysis {
namespace {

using requests::RequestTrace;

/// An engine of the comparison, at every memory and rate.
struct Variant {
  Keeping keeping = Keeping::neither;
  const policy::Composition* policy = nullptr;
  const sim::Budget* budget = nullptr;
};

std::vector<Variant> variants_of(const CompressionGrid& grid) {
  std::vector<Variant> out{{Keeping::neither, nullptr, nullptr}, {Keeping::shared, nullptr, nullptr}};
  for (const Keeping keeping : {Keeping::known, Keeping::unknown}) {
    for (std::size_t i = 0; i < std::max<std::size_t>(grid.budgets.size(), 1); ++i) {
      for (const policy::Composition& policy : grid.policies) {
        const bool own = policy.eviction.spec->own_budget();
        if (own && i > 0) continue;
        if (!own && grid.budgets.empty())
          usage_error("must be told how much it keeps", "--policy " + policy.name, "Say --budget 25%.");
        out.push_back({keeping, &policy, own ? nullptr : &grid.budgets[i]});
      }
    }
  }
  return out;
}

bool is_shared(Keeping keeping) {
  return keeping == Keeping::shared || keeping == Keeping::unknown;
}

/// What policies answer, by cut, parameters and budget.
class Answers {
 public:
  explicit Answers(const CompressionGrid& grid) {
    if (!grid.answers) return;
    if (!holds_closed_rows(*grid.answers))
      input_error("no rows of kvsim evaluate", "--answers", "kvsim evaluate ... -o answers.csv writes them.");
    const Records items = comparable_answers(*grid.answers, {}, grid.least_full);
    std::vector<TraceId> traces;  // lengths do not reach a mean
    for (const std::string& name : distinct(items, "trace")) traces.push_back({name, "", 0, 0});
    means_ = statistics_of(items, traces, {}, {&answer_metric("right")}).means;
  }

  std::optional<RightAnswers> of(const Variant& variant) const {
    if (means_.rows.empty()) return {};
    // The full cache answers the same at both cuts, but for texts that have no question.
    const std::string cut = variant.keeping == Keeping::unknown ? "question" : "prompt";
    std::optional<RightAnswers> out;
    for (const std::vector<Value>& row : means_.rows) {
      const auto field = [&](const char* key) { return exact_field(row[means_.column(key)], ""); };
      if (field("cut") != cut || field("workload") != "all") continue;
      const bool same =
          variant.policy == nullptr ? field("policy") == "full" : field("params") == variant.policy->params;
      if (!same || (variant.budget != nullptr && field("budget") != variant.budget->text)) continue;
      const auto value = [&](const char* key) { return number(row[means_.column(key)]); };
      out = RightAnswers{*value("mean"), value("low"), value("high"),
                         static_cast<std::uint64_t>(value("traces").value_or(0))};
      if (variant.policy != nullptr) break;
    }
    return out;
  }

 private:
  Records means_{};
};

const Columns<CompressionRow>& compression_fields() {
  using Row = CompressionRow;
  using S = serving::ServingSummary;
  const auto sum = [](auto S::*what) { return [what](const Row& row) { return row.run.summary.*what; }; };
  const auto spread = [](Spread S::*of, double Spread::*part) {
    return [=](const Row& row) { return row.run.summary.*of.*part; };
  };
  const auto policy = [](std::string policy::Composition::*what) {
    return [what](const Row& row) { return row.policy == nullptr ? Value() : Value(row.policy->*what); };
  };
  const auto right = [](auto RightAnswers::*what) {
    return [what](const Row& row) { return row.right ? as_field((*row.right).*what) : Value(); };
  };
  static const Columns<Row> all{
      {"keeping", "",
       "what becomes of keys and values of prompts: neither (as they come, for one request), shared (as they "
       "come, for later prompts, too), compressed (with the question known, for one request), compressed and "
       "shared (with the question not known)",
       [](const Row& row) { return keeping_name(row.keeping); }},
      {"policy", "", "that compresses; null: none", policy(&policy::Composition::name)},
      {"params", "", "of the policy, every effective value", policy(&policy::Composition::params)},
      {"budget", "", "of a prompt; null: the policy's own, or no policy",
       [](const Row& row) { return text_or_none(row.budget); }},
      {"memory_bytes", "bytes", "for keys and values on each device",
       [](const Row& row) { return row.run.memory; }},
      {"rate", "", "times as fast as the trace at which requests arrive",
       [](const Row& row) { return row.run.settings.rate; }},
      {"token_bytes", "bytes", "that a token takes on each device", &Row::token_bytes},
      {"capacity", "tokens",
       "that the memory holds; of one sequence where not every token takes the same, null: of any length",
       [](const Row& row) { return capacity_tokens(row.run.settings.engine.memory); }},
      {"hit_rate", "share", "of the tokens of prompts, found when their request started", sum(&S::hit_rate)},
      {"computed_tokens", "tokens", "of prompts and generated ones", sum(&S::computed_tokens)},
      {"ttft_mean", "s", "from arrival to the first token, mean", spread(&S::ttft, &Spread::mean)},
      {"ttft_p50", "s", "50th percentile", spread(&S::ttft, &Spread::p50)},
      {"ttft_p99", "s", "99th percentile", spread(&S::ttft, &Spread::p99)},
      {"tpot_mean", "s", "time per further token, mean", spread(&S::tpot, &Spread::mean)},
      {"tpot_p99", "s", "99th percentile", spread(&S::tpot, &Spread::p99)},
      {"requests_per_second", "1/s", "from the first arrival to the last token",
       sum(&S::requests_per_second)},
      {"generated_per_second", "tokens/s", "generated tokens over the same seconds",
       sum(&S::generated_per_second)},
      {"goodput", "1/s", "requests that keep the limits, over the seconds; null: no limits",
       sum(&S::goodput)},
      {"good_share", "share", "of the requests that keep the limits; null: no limits", sum(&S::good_share)},
      {"busy", "share", "of the seconds in which an engine is in a step", sum(&S::busy)},
      {"running", "", "sequences at a time, while busy", sum(&S::running)},
      {"preemptions", "", "times a sequence gave its memory up", sum(&S::preemptions)},
      {"right", "share", "of the items that the model answers right; null: not in the answers",
       right(&RightAnswers::mean)},
      {"right_low", "share", "lower end of its 95% interval over items", right(&RightAnswers::low)},
      {"right_high", "share", "upper end", right(&RightAnswers::high)},
      {"items", "", "that were answered", right(&RightAnswers::items)}};
  return all;
}

}  // namespace

const char* keeping_name(Keeping keeping) {
  switch (keeping) {
    case Keeping::neither:
      return "neither";
    case Keeping::shared:
      return "shared";
    case Keeping::known:
      return "compressed";
    case Keeping::unknown:
      return "compressed and shared";
  }
  bug("no such keeping");
}

std::vector<CompressionRow> compression_rows(const RequestTrace& trace, const CompressionGrid& grid,
                                             Progress* progress) {
  const std::vector<Variant> variants = variants_of(grid);
  const Answers answers(grid);
  const std::uint64_t tokens = mean_prompt(trace);
  std::vector<ServingGrid> grids;
  for (const Variant& variant : variants) {
    ServingGrid& of = grids.emplace_back(grid.serving);
    of.threads = 1;
    of.over_long = serving::OverLong::skip;
    if (!is_shared(variant.keeping)) of.policies = {std::nullopt};
    if (variant.policy != nullptr) {
      const std::optional<sim::Budget> budget =
          variant.budget == nullptr ? std::nullopt : std::optional(*variant.budget);
      of.served = compressed_model(of.served, *variant.policy, budget, tokens);
    }
  }
  std::vector<std::vector<CompressionRow>> found(variants.size());
  if (progress != nullptr) progress->total = variants.size();
  Workers(grid.serving.threads).run(variants.size(), [&](std::size_t i) {
    if (progress != nullptr && progress->stop) return;
    const Variant& variant = variants[i];
    for (ServingRun& run : serving_runs(trace, grids[i])) {
      // Rows are compared, and must be of the same requests.
      if (run.summary.skipped > 0)
        input_error(std::to_string(run.summary.skipped) + " requests are longer than the memory holds of one",
                    {}, "Give more memory, or leave them out.");
      run.result = {};
      found[i].push_back({.keeping = variant.keeping,
                          .policy = variant.policy,
                          .budget = variant.budget == nullptr ? "" : variant.budget->text,
                          .token_bytes = static_cast<double>(serving::token_bytes(grids[i].served)),
                          .run = std::move(run),
                          .right = answers.of(variant)});
    }
    if (progress != nullptr) progress->advance();
  });
  std::vector<CompressionRow> out;
  for (std::vector<CompressionRow>& rows : found)
    for (CompressionRow& row : rows) out.push_back(std::move(row));
  const auto place = [](const CompressionRow& row) {
    return std::pair(row.run.settings.rate, row.run.memory);
  };
  std::ranges::stable_sort(
      out, [&](const CompressionRow& a, const CompressionRow& b) { return place(a) < place(b); });
  return out;
}

const std::vector<ColumnInfo>& compression_columns() {
  static const std::vector<ColumnInfo> all = infos(compression_fields());
  return all;
}

Records compression_records(const std::vector<CompressionRow>& rows) {
  return table_of(compression_fields(), rows);
}

}  // namespace kvsim::analysis
