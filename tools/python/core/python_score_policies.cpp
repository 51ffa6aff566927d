// Evictions whose score is written in Python (kvsim.ScorePolicy). All else is that of
// policies/api/score_policy.hpp, so they compose, sweep and run beside built-in ones as any other.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_policies.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::CacheUnit;
using policy::Params;
using policy::Position;

constexpr const char* kScores =
    "It is one score per position of the prompt, or per slot of the cache; higher is kept.";

/// What Python sees of a step: copies, made when they are asked for, while the call lasts that was given it.
struct StepOfCall {
  const policy::Step* step = nullptr;  ///< null: the call is over

  const policy::Step& get() const {
    if (step == nullptr)
      usage_error("is gone once observe() has returned", "step", "Keep the arrays that you took from it.");
    return *step;
  }
};

class PythonDecoder final : public policy::ScoredDecoder {
 public:
  PythonDecoder(SharedDeclaration declaration, const CacheUnit& unit, const policy::KeepRule& rule,
                std::vector<double> scores, std::shared_ptr<nb::object> state)
      : ScoredDecoder(rule, std::move(scores)),
        declaration_(std::move(declaration)),
        unit_(unit),
        state_(std::move(state)) {}

  void observe(const policy::Step& step) override {
    const std::span<double> scores = admit(step, 0);
    const std::string where = declaration_->place(unit_, "observe");
    declaration_->with_python(where, [&] {
      auto* const of_call = new StepOfCall{&step};
      const nb::object shown = nb::cast(of_call, nb::rv_policy::take_ownership);
      const nb::object before =
          owned_array(std::vector<double>(scores.begin(), scores.end()), {scores.size()});
      nb::object after;
      try {
        after = state_->attr("observe")(shown, before);
      } catch (...) {
        of_call->step = nullptr;
        throw;
      }
      of_call->step = nullptr;
      const std::vector<double> changed =
          doubles_from(after.is_none() ? before : after, scores.size(), where, kScores);
      std::ranges::copy(changed, scores.begin());
    });
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    declaration_->with_python(declaration_->place(unit_, "close_slots"), [&] {
      if (nb::hasattr(*state_, "close_slots"))
        state_->attr("close_slots")(std::vector<std::size_t>(victims.begin(), victims.end()));
    });
  }

 private:
  SharedDeclaration declaration_;
  CacheUnit unit_;
  std::shared_ptr<nb::object> state_;
};

class PythonEviction final : public Recording<policy::ScoredEviction> {
 public:
  PythonEviction(SharedDeclaration declaration, const Params& params, const CacheUnit& unit)
      : Recording(std::move(declaration), params, unit, params, unit) {}

 private:
  std::vector<double> score(const policy::Prompt& prompt) override {
    const std::string where = declaration_->place(unit(), "score");
    first_ = static_cast<Position>(prompt.first());
    return declaration_->with_python(where, [&] {
      state_ = held(declaration_->instance(params_, &unit()));
      return doubles_from(recorder_.call(*state_, "score", prompt), prompt.length(), where, kScores);
    });
  }

  std::unique_ptr<policy::Decoder> decoder(std::size_t budget,
                                           std::span<const Position> slots) const override {
    if (!declaration_->has_observe) return nullptr;
    return declaration_->with_python(declaration_->place(unit(), "__deepcopy__"), [&] {
      // Every budget goes on from what score() has left in the object, and with slots of its own.
      nb::object own = state_ ? nb::module_::import_("copy").attr("deepcopy")(*state_)
                              : declaration_->instance(params_, &unit());
      own.attr("budget") = budget;
      std::vector<Position> positions(slots.begin(), slots.end());
      for (Position& position : positions) position += first_;
      own.attr("positions") = owned_array(std::move(positions), {slots.size()});
      return std::make_unique<PythonDecoder>(declaration_, unit(), selection(budget), scores_of(slots),
                                             held(std::move(own)));
    });
  }

  Position first_ = 0;                 ///< of the prompt's first row
  std::shared_ptr<nb::object> state_;  ///< the object whose score() was called
};

/// The parameters that every scored policy has.
std::vector<ParamSpec> shared_params(bool decodes) {
  std::vector<ParamSpec> out{policy::sinks_param(0), policy::window_param(0), policy::granularity_param(),
                             policy::unit_param("lane"),
                             decodes ? policy::tie_param() : policy::ranked_tie_param()};
  if (decodes) out.push_back(policy::prompt_param());
  return out;
}

}  // namespace

void complete_score_policy(policy::PolicySpec& spec, const SharedDeclaration& declaration) {
  std::vector<ParamSpec> params = shared_params(declaration->has_observe);
  for (ParamSpec& own : spec.params) {
    const auto same = std::ranges::find_if(params, [&](const ParamSpec& p) { return p.name == own.name; });
    if (same != params.end())
      same->fallback = own.fallback;
    else
      params.push_back(std::move(own));
  }
  spec.params = std::move(params);
  spec.cost = [declaration](const Params& values, const policy::CostShape& shape) {
    policy::Scoring scoring;
    scoring.prompt_rows = declaration->sums ? policy::kAllRows : declaration->rows.of(values);
    scoring.decodes = declaration->has_observe;
    scoring.decode_rows = declaration->has_observe;
    return policy::scored_cost(values, shape, scoring);
  };
  spec.rule = policy::EvictionRule{.scored = true,
                                   .make = [declaration](const Params& values, const CacheUnit& unit) {
                                     return std::make_unique<PythonEviction>(declaration, values, unit);
                                   }};
}

void bind_score_policies(nb::module_& module) {
  nb::class_<StepOfCall>(module, "Step", "A generated token that has attended; every array is a copy.")
      .def_prop_ro(
          "position", [](const StepOfCall& s) { return s.get().position; }, "Position of the query")
      .def_prop_ro(
          "own_slot", [](const StepOfCall& s) { return s.get().own_slot; }, "Slot of the query's own token")
      .def_prop_ro(
          "slots",
          [](const StepOfCall& s) {
            const std::span<const Position> slots = s.get().slots;
            return owned_array(std::vector<Position>(slots.begin(), slots.end()), {slots.size()});
          },
          "Position held by each slot, int32 [slots]")
      .def_prop_ro(
          "attention", [](const StepOfCall& s) { return copied(s.get().attention); },
          "The full cache's attention on each slot, float32 [query heads, slots]")
      .def_prop_ro(
          "mass",
          [](const StepOfCall& s) {
            const std::span<const double> mass = s.get().mass;
            return owned_array(std::vector<double>(mass.begin(), mass.end()), {mass.size()});
          },
          "Sum of each such row, float64 [query heads]; attention / mass is the compressed cache's")
      .def_prop_ro(
          "keys", [](const StepOfCall& s) { return copied(s.get().keys); }, "float32 [lanes, head_dim]")
      .def_prop_ro(
          "values", [](const StepOfCall& s) { return copied(s.get().values); }, "float32 [lanes, value_dim]");
}

}  // namespace kvsim::python
