#include "analysis/requests/compression.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/cost/cost_study.hpp"
#include "analysis/cost/cost_table.hpp"
#include "analysis/requests/prefix_costs.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/workers.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

/// Seconds that a policy adds, by sim/cost: the same holding with its work and without.
class AddedSeconds {
 public:
  AddedSeconds(serving::ServedModel served, policy::Composition policy, std::optional<sim::Budget> budget,
               std::uint64_t tokens)
      : served_(std::move(served)), policy_(std::move(policy)), budget_(std::move(budget)), tokens_(tokens) {}

  double prefill(std::uint64_t prompt) { return asked(prefills_, prompt, true); }
  double step(std::uint64_t decoding) { return asked(steps_, decoding, false); }

 private:
  double asked(std::map<std::uint64_t, double>& known, std::uint64_t n, bool prefill) {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = known.try_emplace(n, 0.0);
    if (fresh) found->second = prefill ? added(n, 1, true) : added(tokens_, n, false);
    return found->second;
  }

  double added(std::uint64_t prompt, std::uint64_t batch, bool prefill) const {
    cost::Serving serving = cost::served_with(served_.serving, policy_);
    serving.prompt = prompt;
    serving.generate = 2;
    serving.batch = batch;
    std::uint64_t kept = prompt + serving.generate;
    // A prompt that the policy keeps whatever it scores is not compressed.
    if (policy_.floor() > kept) return 0;
    if (budget_ && !policy_.eviction.spec->own_budget())
      kept = std::clamp<std::uint64_t>(budget_tokens_of(prompt), policy_.floor(), kept);
    const cost::Holding holding =
        cost::rule_holding(policy_, served_.model, cost::stored_heads(served_.model, serving.layout), prompt,
                           serving.generate, kept);
    const policy::Cost work = cost::cost_of(policy_, served_.model, prompt, kept);
    const auto seconds = [&](const policy::Cost& of) {
      return prefill ? cost::prefill_time(served_.model, served_.machine, serving, holding, of).seconds()
                     : cost::step_time(served_.model, served_.machine, serving, holding, of, 1).seconds();
    };
    return std::max(0.0, seconds(work) - seconds({}));
  }

  std::uint64_t budget_tokens_of(std::uint64_t prompt) const {
    // A short prompt keeps one token at least, whatever the share.
    if (budget_->unit == sim::Budget::Unit::share && budget_->value * static_cast<double>(prompt) < 1)
      return 1;
    return budget_tokens(*budget_, served_.model, served_.serving.layout, policy_, prompt, 2);
  }

  const serving::ServedModel served_;
  const policy::Composition policy_;
  const std::optional<sim::Budget> budget_;
  const std::uint64_t tokens_;
  std::mutex mutex_;
  std::map<std::uint64_t, double> prefills_{}, steps_{};
};

serving::KeptTokens kept_tokens(const serving::ServedModel& served, const policy::Composition& policy,
                                const std::optional<sim::Budget>& budget, std::uint64_t tokens,
                                double bytes) {
  const auto added = std::make_shared<AddedSeconds>(served, policy, budget, tokens);
  return {.bytes = bytes,
          .compression = [added](std::uint64_t prompt) { return added->prefill(prompt); },
          .step = [added](std::uint64_t decoding) { return added->step(decoding); }};
}

/// What a step reads of what is kept of a prompt of `tokens` tokens, by kind of layer.
serving::KeptTokens::Read read_shares(const serving::ServedModel& served, const StoredPrompt& stored,
                                      std::uint64_t tokens) {
  double held[2] = {}, whole[2] = {}, lanes = 0;  // without a window, with it
  for (const cost::EqualLayers& group : stored.holding.layers) {
    const bool windowed = group.window > 0;
    for (const cost::EqualLanes& equal : group.lanes) {
      const auto count = static_cast<double>(group.layers * equal.lanes);
      held[windowed] += count * static_cast<double>(equal.at(0));
      whole[windowed] += count * static_cast<double>(group.within_window(tokens));
      lanes += count;
    }
  }
  // A kept token takes more or less than it does as it comes.
  const double as_it_comes = static_cast<double>(token_bytes(served)) / lanes;
  const double size = stored.bytes / ((held[0] + held[1]) * as_it_comes);
  const auto share = [&](bool windowed) {
    return whole[windowed] == 0 ? 1 : size * held[windowed] / whole[windowed];
  };
  return {share(false), share(true)};
}

}  // namespace

serving::ServedModel compressed_model(serving::ServedModel served, const policy::Composition& policy,
                                      const std::optional<sim::Budget>& budget, std::uint64_t tokens) {
  cost::require_caches(served.model, "compression");
  const StoredPrompt stored = stored_prompt(served, policy, budget, tokens);
  serving::KeptTokens kept =
      kept_tokens(served, policy, budget, tokens, stored.bytes / static_cast<double>(tokens));
  if (served.model.window > 0) kept.read = read_shares(served, stored, tokens);
  served.kept = std::move(kept);
  return served;
}

serving::ServedModel represented_model(serving::ServedModel served, const policy::Composition& stored,
                                       std::uint64_t tokens) {
  (void)cost::cost_of(stored, served.model, tokens, tokens);  // throws where the shape does not suit
  const cost::Serving with = cost::served_with(served.serving, stored);
  const auto bytes = [&](const cost::Storage& storage) {
    return static_cast<double>(
        cost::stored_bytes(storage, served.model, served.model.kv_heads, {.kept = tokens}));
  };
  const double share = bytes(with.layout.storage) / bytes(served.serving.layout.storage);
  served.kept = kept_tokens(served, stored, std::nullopt, tokens,
                            share * static_cast<double>(serving::token_bytes(served)));
  served.serving = with;
  return served;
}

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

namespace {

/// "snapkv 25%"; "-" without a policy.
std::string compression_label(const CompressionRow& row) {
  if (row.policy == nullptr) return "-";
  return row.policy->name + (row.budget.empty() ? "" : " " + row.budget);
}

std::string right_text(const CompressionRow& row) {
  if (!row.right) return "-";
  std::string out = fixed_text(100 * row.right->mean, 1);
  if (row.right->low)
    out += " (" + fixed_text(100 * *row.right->low, 0) + "-" + fixed_text(100 * *row.right->high, 0) + ")";
  return out;
}

std::vector<Shown<CompressionRow>> shown_columns(const CompressionGrid& grid) {
  using Row = CompressionRow;
  std::vector<Shown<Row>> out;
  if (grid.serving.rates.size() > 1)
    out.push_back({"rate", Align::point, [](const Row& row) { return rounded_text(row.run.settings.rate); }});
  const std::vector<Shown<Row>> always{
      {"memory", Align::right, [](const Row& row) { return bytes_text(row.run.memory); }},
      {"keeping", Align::left, [](const Row& row) { return std::string(keeping_name(row.keeping)); }},
      {"policy", Align::left, compression_label},
      {"KiB a token", Align::point, [](const Row& row) { return fixed_text(row.token_bytes / 1024, 1); }},
      {"hits %", Align::point, [](const Row& row) { return real_text(100 * row.run.summary.hit_rate, 1); }},
      {"TTFT p50 s", Align::point, [](const Row& row) { return real_text(row.run.summary.ttft.p50, 2); }},
      {"TTFT p99 s", Align::point, [](const Row& row) { return real_text(row.run.summary.ttft.p99, 2); }},
      {"TPOT mean ms", Align::point,
       [](const Row& row) { return real_text(1e3 * row.run.summary.tpot.mean, 1); }},
      {"requests /s", Align::point,
       [](const Row& row) { return real_text(row.run.summary.requests_per_second, 3); }},
      {"running", Align::point, [](const Row& row) { return real_text(row.run.summary.running, 1); }}};
  out.insert(out.end(), always.begin(), always.end());
  if (grid.serving.slo.any())
    out.push_back({"good %", Align::point, [](const Row& row) {
                     return real_text(100 * row.run.summary.good_share.value_or(0), 1);
                   }});
  if (grid.answers) out.push_back({"right % (95%)", Align::left, right_text});
  return out;
}

constexpr const char* kRests[] = {
    "A compressed cache holds a token in the bytes that it takes of a prompt of the trace's mean length; a "
    "decoding step reads these bytes.",
    "Compressed with the question known, what is kept suits one request alone. Compressed before the "
    "question is "
    "known, what is kept of a block is taken not to depend on what follows it: it is made once, and later "
    "prompts "
    "find it.",
    "A prompt is computed with its tokens as they come, those found included, which is an upper limit of its "
    "attention where they are compressed."};

std::string answers_text(const CompressionGrid& grid) {
  if (!grid.answers) return "No answers are joined: kvsim evaluate makes them, --answers names them.";
  const std::vector<std::string> models = distinct(*grid.answers, "model");
  return "Answers are those of " + joined(models) +
         " at cut `prompt` (compressed, and full caches) and `question` "
         "(compressed and shared); their prompts are not those of the traffic.";
}

}  // namespace

void write_compression_table(std::ostream& out, const CompressionGrid& grid,
                             const std::vector<CompressionRow>& rows) {
  out << "model    " << described(grid.serving.served.model) << "\nmachine  "
      << described(grid.serving.served.machine) << "\n\n";
  shown_table(shown_columns(grid), rows, [](const std::string&, const std::string&) {}).print(out);
  out << '\n' << answers_text(grid) << '\n';
}

void write_compression_page(std::ostream& out, const CompressionGrid& grid,
                            const std::vector<CompressionRow>& rows, const std::string& file) {
  out << "# Compression against reuse\n\nOne traffic (`" << file << "`) on engines that serve "
      << described(grid.serving.served.model) << ", on " << described(grid.serving.served.machine)
      << ". All have the same memory for keys and values. They keep them as they come, for one request "
         "(neither) or for later prompts, too (shared: prefix caching); compressed, for one request "
         "(compressed); or compressed, for later prompts, too (compressed and shared).\n\n";
  const std::vector<Shown<CompressionRow>> columns = shown_columns(grid);
  out << '|';
  for (const Shown<CompressionRow>& column : columns) out << ' ' << column.heading << " |";
  out << "\n|";
  for (const Shown<CompressionRow>& column : columns)
    out << (column.align == Align::left ? " --- |" : " ---: |");
  out << '\n';
  for (const CompressionRow& row : rows) {
    out << '|';
    for (const Shown<CompressionRow>& column : columns) out << ' ' << column.text(row) << " |";
    out << '\n';
  }
  out << "\nWhat this rests on:\n\n";
  for (const char* each : kRests) out << "- " << each << '\n';
  out << "- " << answers_text(grid) << '\n';
}

}  // namespace kvsim::analysis
