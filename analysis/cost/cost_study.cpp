#include "analysis/cost/cost_study.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/cost/estimate.hpp"

namespace kvsim::analysis {
namespace {

/// A row to be, and where its parts come from.
struct Point {
  std::uint64_t prompt, generate, batch;
  const sim::Budget* budget;  ///< null: the policy has a size of its own, or none is given
  const policy::Composition* policy;
};

bool own_size(const policy::Composition& composition) {
  return composition.eviction.spec->own_budget();
}

/// Policies at budgets, as they stand under each workload.
std::vector<Point> cells_of(const CostStudy& study) {
  std::vector<Point> out;
  const std::size_t rounds = std::max<std::size_t>(1, study.budgets.size());
  for (std::size_t i = 0; i < rounds; ++i) {
    const sim::Budget* budget = study.budgets.empty() ? nullptr : &study.budgets[i];
    for (const policy::Composition& policy : study.policies) {
      if (!own_size(policy))
        out.push_back({0, 0, 0, budget, &policy});
      else if (i == 0)
        out.push_back({0, 0, 0, nullptr, &policy});
    }
  }
  return out;
}

std::vector<Point> points_of(const CostStudy& study) {
  const std::vector<Point> cells = cells_of(study);
  std::vector<Point> out;
  for (const std::uint64_t prompt : study.prompts)
    for (const std::uint64_t generate : study.generates)
      for (const std::uint64_t batch : study.batches)
        for (const Point& cell : cells) out.push_back({prompt, generate, batch, cell.budget, cell.policy});
  return out;
}

cost::Serving at_point(cost::Serving serving, const Point& point) {
  serving.prompt = point.prompt;
  serving.generate = point.generate;
  serving.batch = point.batch;
  return serving;
}

cost::SweepPoint sweep_point(const CostStudy& study, const cost::Model& model, const cost::Serving& serving,
                             const Point& point) {
  cost::SweepPoint out{&model, &study.machine, point.policy, at_point(serving, point)};
  out.budget = point.budget ? budget_tokens(*point.budget, model, serving.layout, *point.policy, point.prompt,
                                            point.generate)
                            : point.prompt + point.generate;
  if (point.budget && point.budget->unit == sim::Budget::Unit::share) out.share = point.budget->value;
  out.cap = study.machine.memory;
  return out;
}

/// The row of a point, without its estimate.
CostRow row_of(const CostStudy& study, const Point& point) {
  CostRow row;
  row.model = study.model.name;
  row.machine = study.machine.name;
  row.machine_memory = study.machine.memory;
  row.policy = point.policy->name;
  row.params = point.policy->params;
  if (point.budget) row.budget = point.budget->text;
  row.prompt = point.prompt;
  row.generate = point.generate;
  row.batch = point.batch;
  return row;
}

/// The most tokens that fit where each more takes as much as the one before.
template <class Fits>
std::uint64_t most_of_any(Fits fits) {
  std::uint64_t below = 0, above = 1;
  while (fits(above)) {
    below = above;
    above *= 2;
  }
  while (above - below > 1) {
    const std::uint64_t middle = below + (above - below) / 2;
    (fits(middle) ? below : above) = middle;
  }
  return below;
}

/// The tokens up to which every number fits, at most `limit`, as a replay counts them: a token more takes
/// less where a full window is coded.
template <class Fits>
std::uint64_t most_in_sequence(std::uint64_t limit, Fits fits) {
  std::uint64_t tokens = 0;
  while (tokens < limit && fits(tokens + 1)) ++tokens;
  return tokens;
}

void price(CostRow& row, const CostStudy& study, const cost::Serving& asked, const sim::Outcome& outcome,
           const sim::Cell& cell, const sim::CellOutcome& held) {
  check_serving(study.model, asked);
  const cost::Serving serving = served_with(asked, cell.composition);
  const std::uint64_t budget =
      own_size(cell.composition) ? serving.prompt + serving.generate : held.budget_tokens;
  const cost::Holding holding =
      cost::replayed_holding(outcome, held, study.model, cost::stored_heads(study.model, serving.layout),
                             serving.layout.storage.element_bits);
  const policy::Cost cost = cost::cost_of(cell.composition, study.model, serving.prompt, budget);
  row.estimate = cost::estimate(study.model, study.machine, serving, holding, cost, budget);
  row.largest_batch =
      cost::largest_batch(study.model, study.machine, serving, holding, cost, study.machine.memory);
}

/// Passes of a point's cache over several tokens, in the middle of the answer.
std::function<cost::PassTime(std::uint64_t tokens)> passes_of(const cost::SweepPoint& point) {
  const cost::Serving& asked = point.serving;
  return [point, serving = served_with(asked, *point.composition),
          holding = cost::rule_holding(*point.composition, *point.model,
                                       cost::stored_heads(*point.model, asked.layout), asked.prompt,
                                       asked.generate, point.budget, point.share),
          cost = cost::cost_of(*point.composition, *point.model, asked.prompt, point.budget)](
             std::uint64_t tokens) {
    return cost::verification_time(*point.model, *point.machine, serving, holding, cost, tokens,
                                   std::max<std::uint64_t>(1, serving.generate / 2));
  };
}

/// The point's cache as it verifies what it drafts: read=upper of a representation drafts from half of the
/// bits that its read=both verifies by. None: the full cache verifies.
std::optional<policy::Composition> verifier_of(policy::Composition composition) {
  if (!composition.representation) return {};
  for (ParamValue& value : composition.representation->params.entries)
    if (value.name == "read" && value.text == "upper") {
      value.text = "both";
      return composition;
    }
  return {};
}

/// `own`: the row's point. `draft`, `drafted`: what drafts, and its estimate.
void price_drafting(CostRow& row, const CostStudy& study, const cost::SweepPoint& own,
                    const cost::SweepPoint& draft, const cost::Estimate& drafted) {
  const cost::Serving& serving = own.serving;
  const cost::Memory& held = row.estimate->at_end;
  cost::Round round{.draft = drafted.time.per_token};
  if (study.draft_parallel > 1) {
    round.draft =
        cost::layer_parallel_time(*draft.model, study.machine, served_with(draft.serving, *draft.composition),
                                  drafted.time.mean_step, study.draft_parallel);
    round.calibrate = [passes = passes_of(draft)](double tokens) {
      const cost::PassTime pass = passes(static_cast<std::uint64_t>(std::ceil(tokens)));
      return pass.seconds() - pass[cost::OpClass::head].seconds;
    };
  }
  if (study.draft_cache) {
    // What more tokens add in the middle is added to the mean step.
    round.alone = row.estimate->time.per_token;
    round.verify = [passes = passes_of(own), alone = round.alone](std::uint64_t gamma) {
      return gamma == 0 ? alone : alone + passes(gamma + 1).seconds() - passes(1).seconds();
    };
    row.inner = cost::fastest_drafting(round, study.draft_acceptance);
    row.helped = study.draft_cache->composition.name + "@" + study.draft_cache->budget.text;
    round = {.draft = row.inner->per_token};
  }
  const auto full = [&](std::uint64_t gamma) {
    return cost::verification_time(study.model, study.machine, serving, gamma + 1,
                                   serving.prompt + serving.generate / 2)
        .seconds();
  };
  round.verify = full;
  round.alone = full(0);
  const bool own_drafts = !study.drafter || study.draft_cache;
  const std::optional<policy::Composition> form = own_drafts ? verifier_of(*own.composition) : std::nullopt;
  cost::SweepPoint of_form = own;
  if (form) {
    of_form.composition = &*form;
    round.verify = [passes = passes_of(of_form)](std::uint64_t gamma) { return passes(gamma + 1).seconds(); };
  }
  row.drafting = cost::fastest_drafting(round, *study.acceptance);
  // What keeps everything as it comes, whatever a selection reads of it, is the full cache.
  const bool same =
      own_drafts && own.composition->eviction.spec->keeps_all() && !own.composition->representation;
  row.drafted_bytes = held.total();
  if (form)
    row.drafted_bytes = cost::estimate(study.model, study.machine, serving, *form, own.budget).at_end.total();
  else if (!same)
    row.drafted_bytes +=
        serving.batch *
        cost::sequence_bytes(study.model, serving, {.kept = serving.prompt, .appended = serving.generate})
            .all();
  if (!study.drafter) return;
  row.drafter = study.drafter->model.name;
  row.draft_prefill = drafted.time.first_token;
  row.drafted_bytes += drafted.at_end.total() - drafted.at_end.reserved - (own_drafts ? 0 : held.cache());
}

}  // namespace

std::uint64_t CostStudy::points() const {
  return std::uint64_t{prompts.size()} * generates.size() * batches.size() * cells_of(*this).size();
}

std::uint64_t budget_tokens(const sim::Budget& budget, const cost::Model& model, const cost::Layout& layout,
                            const policy::Composition& composition, std::uint64_t prompt,
                            std::uint64_t generate) {
  double tokens = budget.value;
  if (budget.unit == sim::Budget::Unit::share) {
    // The nudge keeps 0.29 * 100 from becoming 28.
    tokens = std::floor(budget.value * static_cast<double>(prompt) + 1e-9);
  } else if (budget.unit == sim::Budget::Unit::bytes) {
    cost::Serving serving;
    serving.layout = layout;
    serving = served_with(serving, composition);
    const auto fits = [&](std::uint64_t n) {
      return static_cast<double>(cost::full_cache_bytes(model, serving.layout, n, 1)) <= budget.value;
    };
    tokens = static_cast<double>(composition.representation ? most_in_sequence(prompt + generate + 1, fits)
                                                            : most_of_any(fits));
  }
  if (tokens < 1)
    usage_error("comes to less than one token per lane", "budget " + in_quotes(budget.text),
                "A lane always holds the token it is computing.");
  return static_cast<std::uint64_t>(tokens);
}

std::vector<CostRow> cost_rows(const CostStudy& study) {
  const std::vector<Point> points = points_of(study);
  std::vector<cost::SweepPoint> asked, drafting;
  for (const Point& point : points) {
    asked.push_back(sweep_point(study, study.model, study.serving, point));
    if (!study.drafter) continue;
    Point its = point;
    if (study.draft_cache) {
      its.policy = &study.draft_cache->composition;
      its.budget = own_size(*its.policy) ? nullptr : &study.draft_cache->budget;
    }
    drafting.push_back(sweep_point(study, study.drafter->model, study.drafter->serving, its));
  }
  const std::vector<cost::SweepResult> results = cost::sweep(asked, study.threads);
  const std::vector<cost::SweepResult> drafts = cost::sweep(drafting, study.threads);
  std::vector<CostRow> rows;
  for (std::size_t i = 0; i < points.size(); ++i) {
    CostRow& row = rows.emplace_back(row_of(study, points[i]));
    row.skipped = results[i].problem;
    if (study.drafter && row.skipped.empty()) row.skipped = drafts[i].problem;
    if (!row.skipped.empty()) continue;
    row.estimate = results[i].estimate;
    row.largest_batch = results[i].largest_batch;
    if (study.computed)
      row.assembly =
          cost::assembly_time(study.model, study.machine, asked[i].serving, *study.computed, study.documents);
    if (study.predictor)
      row.prediction = cost::prediction_time(study.model, asked[i].serving, study.predictor->model,
                                             at_point(study.predictor->serving, points[i]), study.machine);
    if (study.acceptance)
      price_drafting(row, study, asked[i], (study.drafter ? drafting : asked)[i],
                     (study.drafter ? drafts : results)[i].estimate);
  }
  refuse_only_skipped(rows);
  return rows;
}

void refuse_only_skipped(const std::vector<CostRow>& rows) {
  if (std::ranges::none_of(rows, [](const CostRow& row) { return row.estimate.has_value(); }))
    throw Error(ErrorKind::usage, rows.front().skipped);
}

std::vector<CostRow> replayed_cost_rows(const CostStudy& study, const std::string& trace,
                                        const sim::Request& request, const sim::Outcome& outcome) {
  cost::Serving serving = study.serving;
  serving.prompt = outcome.prompt;
  serving.generate = outcome.decode;
  serving.batch = study.batches.front();
  std::vector<CostRow> rows;
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    const sim::Cell& cell = request.cells[i];
    const sim::Budget* budget = own_size(cell.composition) ? nullptr : &cell.budget;
    CostRow& row = rows.emplace_back(
        row_of(study, {serving.prompt, serving.generate, serving.batch, budget, &cell.composition}));
    row.trace = trace;
    row.skipped = outcome.cells[i].skipped;
    if (!row.skipped.empty()) continue;
    try {
      price(row, study, serving, outcome, cell, outcome.cells[i]);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      row.estimate.reset();
      row.skipped = error.what();
    }
  }
  return rows;
}

}  // namespace kvsim::analysis
