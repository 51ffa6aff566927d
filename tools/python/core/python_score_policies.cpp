#include "tools/python/core/python_score_policies.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "policies/api/score_policy.hpp"
#include "policies/builtin.hpp"
#include "policies/parts/column_sums.hpp"
#include "policies/parts/cost_terms.hpp"
#include "sim/base/error.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::CacheUnit;
using policy::Params;
using policy::PolicySpec;
using policy::Position;

/// A reference that may be dropped in any thread.
std::shared_ptr<nb::object> held(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* dropped) {
            const nb::gil_scoped_acquire lock;
            delete dropped;
          }};
}

std::string text_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object));
}

/// "ValueError: ...".
std::string description(nb::handle exception) {
  return text_of(exception.type().attr("__name__")) + ": " + text_of(exception);
}

/// What a policy declares, read once.
struct Declaration {
  std::string name;
  std::shared_ptr<nb::object> written;  ///< the class
  std::size_t rows = 0;                 ///< how many of the last prompt rows it reads ...
  std::string rows_param;               ///< ... or the parameter that says so
  bool sums = false;                    ///< it reads the attention of all rows, in sum
  bool keys = false, values = false, queries = false;
  bool decodes = false;  ///< it changes scores while tokens are generated
  PolicyFailures* failures = nullptr;

  std::size_t window(const Params& params) const {
    return rows_param.empty() ? rows : params.count(rows_param);
  }
};
using SharedDeclaration = std::shared_ptr<const Declaration>;

std::string place(const Declaration& declaration, const CacheUnit& unit, const char* method) {
  return declaration.name + ": layer " + std::to_string(unit.layer) + ", KV head " +
         std::to_string(unit.first_kv_head) + ": " + method + "()";
}

template <class T>
using Array = nb::ndarray<nb::numpy, T>;

/// An array that owns its numbers.
template <class T>
nb::object array(std::vector<T> numbers, std::initializer_list<std::size_t> shape) {
  auto* const data = new std::vector<T>(std::move(numbers));
  const nb::capsule owner(data, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(Array<T>(data->data(), shape.size(), shape.begin(), owner));
}

/// A copy of several matrices of one shape, [n, rows, cols].
template <class MatrixOf>
nb::object stacked(std::size_t n, MatrixOf matrix_of) {
  std::vector<float> numbers;
  std::size_t rows = 0, cols = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const MatrixView matrix = matrix_of(static_cast<int>(i));
    rows = matrix.rows;
    cols = matrix.cols;
    numbers.reserve(n * rows * cols);
    for (std::size_t r = 0; r < rows; ++r)
      numbers.insert(numbers.end(), matrix.row(r).begin(), matrix.row(r).end());
  }
  return array(std::move(numbers), {n, rows, cols});
}

nb::object copied(const MatrixView& matrix) {
  std::vector<float> numbers;
  for (std::size_t r = 0; r < matrix.rows; ++r)
    numbers.insert(numbers.end(), matrix.row(r).begin(), matrix.row(r).end());
  return array(std::move(numbers), {matrix.rows, matrix.cols});
}

/// What Python sees of a prompt: copies, made when they are asked for, while the call lasts that was given
/// it. Python owns it and may keep it for longer.
struct PromptOfCall {
  const policy::Prompt* prompt = nullptr;  ///< null: the call is over
  CacheUnit unit;
  nb::object rows, sums;

  const policy::Prompt& get() const {
    if (prompt == nullptr)
      usage_error("is gone once score() has returned", "prompt", "Keep the arrays that you took from it.");
    return *prompt;
  }
};

/// The same of a step.
struct StepOfCall {
  const policy::Step* step = nullptr;

  const policy::Step& get() const {
    if (step == nullptr)
      usage_error("is gone once observe() has returned", "step", "Keep the arrays that you took from it.");
    return *step;
  }
};

/// The numbers that a method has returned, one per position or slot.
std::vector<double> scores_from(const nb::object& returned, std::size_t wanted, const std::string& where) {
  nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu> scores;
  const nb::object numpy = nb::module_::import_("numpy");
  const nb::object doubles = numpy.attr("ascontiguousarray")(returned, nb::arg("dtype") = "float64");
  if (nb::cast<std::size_t>(doubles.attr("ndim")) != 1 || !nb::try_cast(doubles, scores) ||
      scores.shape(0) != wanted)
    usage_error("returned an array of shape " + text_of(doubles.attr("shape")) + " where (" +
                    std::to_string(wanted) + ",) is expected",
                where,
                "It is one score per position of the prompt, or per slot of the cache; higher is kept.");
  std::vector<double> out(scores.data(), scores.data() + wanted);
  const auto nan = std::find_if(out.begin(), out.end(), [](double x) { return std::isnan(x); });
  if (nan != out.end())
    usage_error("returned NaN as the score of " + std::to_string(nan - out.begin()), where,
                "A score may be infinite, but it must have an order.");
  return out;
}

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
    const std::string where = place(*declaration_, unit_, "observe");
    const nb::gil_scoped_acquire lock;
    try {
      auto* const of_call = new StepOfCall{&step};
      const nb::object shown = nb::cast(of_call, nb::rv_policy::take_ownership);
      const nb::object before = array(std::vector<double>(scores.begin(), scores.end()), {scores.size()});
      nb::object after;
      try {
        after = state_->attr("observe")(shown, before);
      } catch (...) {
        of_call->step = nullptr;
        throw;
      }
      of_call->step = nullptr;
      const std::vector<double> changed = scores_from(after.is_none() ? before : after, scores.size(), where);
      std::copy(changed.begin(), changed.end(), scores.begin());
    } catch (nb::python_error& error) {
      declaration_->failures->keep(where, error);
    }
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    const nb::gil_scoped_acquire lock;
    try {
      if (nb::hasattr(*state_, "close_slots"))
        state_->attr("close_slots")(std::vector<std::size_t>(victims.begin(), victims.end()));
    } catch (nb::python_error& error) {
      declaration_->failures->keep(place(*declaration_, unit_, "close_slots"), error);
    }
  }

 private:
  SharedDeclaration declaration_;
  CacheUnit unit_;
  std::shared_ptr<nb::object> state_;
};

class PythonEviction final : public policy::ScoredEviction {
 public:
  PythonEviction(SharedDeclaration declaration, const Params& params, const CacheUnit& unit)
      : ScoredEviction(unit, policy::KeepRule::of(params)),
        declaration_(std::move(declaration)),
        params_(params),
        window_(declaration_->window(params)),
        sums_(unit.n_query_heads(), policy::kAllRows) {}

  std::size_t prompt_rows() const override { return declaration_->sums ? policy::kAllRows : window_; }
  std::size_t rows_beside_columns() const override { return window_; }
  void observe_columns(const policy::PromptColumns& columns) override {
    if (declaration_->sums) sums_.take(columns.query_head, columns.sum);
  }
  void observe(const policy::PromptRows& block) override {
    if (declaration_->sums) sums_.add(block);
    if (window_ == 0) return;
    const std::size_t length = block.prompt_length, rows = std::min(window_, length), first = length - rows;
    const auto heads = static_cast<std::size_t>(unit().n_query_heads());
    rows_.resize(heads * rows * length);
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      const std::size_t row = block.first_query + i;
      if (row < first) continue;
      const std::span<const float> from = block.p.row(i);
      std::copy(
          from.begin(), from.end(),
          rows_.begin() + static_cast<std::ptrdiff_t>(
                              ((static_cast<std::size_t>(block.query_head) * rows) + row - first) * length));
    }
  }

 private:
  std::vector<double> score(const policy::Prompt& prompt) override {
    const std::string where = place(*declaration_, unit(), "score");
    const nb::gil_scoped_acquire lock;
    try {
      const auto heads = static_cast<std::size_t>(unit().n_query_heads());
      auto* const of_call = new PromptOfCall{&prompt, unit(), nb::none(), nb::none()};
      const nb::object shown = nb::cast(of_call, nb::rv_policy::take_ownership);
      if (window_ > 0)
        of_call->rows = array(std::move(rows_), {heads, std::min(window_, prompt.length()), prompt.length()});
      if (declaration_->sums) {
        std::vector<double> sums;
        for (std::size_t head = 0; head < heads; ++head)
          sums.insert(sums.end(), sums_.head(head).begin(), sums_.head(head).end());
        of_call->sums = array(std::move(sums), {heads, prompt.length()});
      }
      state_ = held(instance());
      nb::object returned;
      try {
        returned = state_->attr("score")(shown);
      } catch (...) {
        of_call->prompt = nullptr;
        throw;
      }
      of_call->prompt = nullptr;
      return scores_from(returned, prompt.length(), where);
    } catch (nb::python_error& error) {
      declaration_->failures->keep(where, error);
    }
  }

  std::unique_ptr<policy::Decoder> decoder(std::size_t budget,
                                           std::span<const Position> slots) const override {
    if (!declaration_->decodes) return nullptr;
    const nb::gil_scoped_acquire lock;
    try {
      // Every budget goes on from what score() has left in the object, and with slots of its own.
      nb::object own = state_ ? nb::module_::import_("copy").attr("deepcopy")(*state_) : instance();
      own.attr("budget") = budget;
      own.attr("positions") = array(std::vector<Position>(slots.begin(), slots.end()), {slots.size()});
      return std::make_unique<PythonDecoder>(declaration_, unit(), selection(budget), scores_of(slots),
                                             held(std::move(own)));
    } catch (nb::python_error& error) {
      declaration_->failures->keep(place(*declaration_, unit(), "__deepcopy__"), error);
    }
  }

  nb::object instance() const {
    nb::dict values;
    for (const ParamValue& value : params_.entries) {
      const nb::str name(value.name.data(), value.name.size());
      if (value.type == ParamType::count)
        values[name] = value.whole;
      else if (value.type == ParamType::flag)
        values[name] = value.number != 0;
      else if (value.type == ParamType::real)
        values[name] = value.number;
      else
        values[name] = value.text;
    }
    nb::dict shape;
    shape["layer"] = unit().layer;
    shape["n_layers"] = unit().n_layers;
    shape["kv_head"] = unit().first_kv_head;
    shape["n_lanes"] = unit().n_lanes;
    shape["group"] = unit().group;
    shape["head_dim"] = unit().head_dim;
    shape["value_dim"] = unit().value_dim;
    shape["span"] = unit().span;
    shape["seed"] = unit().seed;
    return declaration_->written->attr("_of_unit")(values, shape);
  }

  SharedDeclaration declaration_;
  Params params_;
  std::size_t window_;
  std::vector<float> rows_;  ///< [query heads, window, prompt]
  policy::ColumnSums sums_;
  std::shared_ptr<nb::object> state_;  ///< the object whose score() was called
};

ParamSpec param_of(const std::string& name, nb::handle fallback) {
  constexpr double kMostCount = 9007199254740992.0;  // 2^53
  ParamSpec out{.name = name};
  if (nb::isinstance<nb::bool_>(fallback)) {
    out.type = ParamType::flag;
    out.fallback = nb::cast<bool>(fallback) ? "true" : "false";
  } else if (nb::isinstance<nb::int_>(fallback)) {
    out.type = ParamType::count;
    out.max = kMostCount;
    out.fallback = text_of(fallback);
  } else if (nb::isinstance<nb::float_>(fallback)) {
    out.type = ParamType::real;
    out.min = -kNoLimit;
    out.max = kNoLimit;
    out.fallback = nb::cast<std::string>(nb::repr(fallback));
  } else if (nb::isinstance<nb::tuple>(fallback)) {
    out.type = ParamType::choice;
    out.choices = nb::cast<std::vector<std::string>>(fallback);
    out.fallback = out.choices.at(0);
  } else {
    out.type = ParamType::word;
    out.fallback = nb::cast<std::string>(fallback);
  }
  return out;
}

/// The parameters that every scored policy has, with other defaults where it declares some.
std::vector<ParamSpec> shared_params(bool decodes) {
  std::vector<ParamSpec> out{policy::sinks_param(0), policy::window_param(0), policy::granularity_param(),
                             policy::unit_param("lane"),
                             decodes ? policy::tie_param() : policy::ranked_tie_param()};
  if (decodes) out.push_back(policy::prompt_param());
  return out;
}

}  // namespace

void PolicyFailures::keep(const std::string& where, nb::python_error& error) {
  const nb::gil_scoped_acquire lock;
  const std::lock_guard guard(mutex_);
  const std::string what = description(error.value());
  if (!exception_.is_valid()) {
    exception_ = nb::borrow(error.value());
    where_ = where;
  }
  usage_error(what, where);
}

void PolicyFailures::raise() {
  if (!exception_.is_valid()) return;
  const nb::object exception = std::exchange(exception_, nb::object());
  const nb::object kind = nb::module_::import_("kvsim._core").attr("PolicyError");
  const std::string what = description(exception);
  nb::object made = kind((where_ + ": " + what).c_str());
  made.attr("problem") = what;
  made.attr("where") = where_;
  made.attr("hint") = "";
  made.attr("__cause__") = exception;
  PyErr_SetObject(kind.ptr(), made.ptr());
  throw nb::python_error();
}

PolicySpec score_policy_spec(nb::handle written, PolicyFailures& failures) {
  const nb::dict says = nb::cast<nb::dict>(written.attr("_declaration")());
  auto read = std::make_shared<Declaration>();
  read->name = nb::cast<std::string>(says["name"]);
  read->written = held(nb::borrow(written));
  if (nb::isinstance<nb::str>(says["rows"]))
    read->rows_param = nb::cast<std::string>(says["rows"]);
  else
    read->rows = nb::cast<std::size_t>(says["rows"]);
  read->sums = nb::cast<bool>(says["sums"]);
  read->keys = nb::cast<bool>(says["keys"]);
  read->values = nb::cast<bool>(says["values"]);
  read->queries = nb::cast<bool>(says["queries"]);
  read->decodes = nb::cast<bool>(says["decodes"]);
  read->failures = &failures;
  const SharedDeclaration declaration = std::move(read);

  const policy::Registry& builtin = policy::builtin();
  if (builtin.find_policy(policy::Kind::eviction, declaration->name) != nullptr ||
      builtin.find_preset(declaration->name) != nullptr)
    usage_error("is the name of a policy that kvsim has", declaration->name,
                "Give the class another `name`.");
  PolicySpec spec;
  spec.name = declaration->name;
  spec.summary = nb::cast<std::string>(says["summary"]);
  spec.paper = nb::cast<std::string>(says["paper"]);
  spec.details = nb::cast<std::string>(says["details"]);
  spec.params = shared_params(declaration->decodes);
  for (const auto [key, fallback] : nb::cast<nb::dict>(says["params"])) {
    ParamSpec own = param_of(nb::cast<std::string>(key), fallback);
    const auto same = std::find_if(spec.params.begin(), spec.params.end(),
                                   [&](const ParamSpec& shared) { return shared.name == own.name; });
    if (same != spec.params.end())
      same->fallback = own.fallback;
    else
      spec.params.push_back(std::move(own));
  }
  const auto needs = [declaration](const Params& params) {
    policy::Needs out;
    out.prompt_rows = declaration->sums                 ? policy::RowNeed::all
                      : declaration->window(params) > 0 ? policy::RowNeed::window
                                                        : policy::RowNeed::none;
    out.decode_rows = declaration->decodes;
    out.keys = declaration->keys;
    out.values = declaration->values;
    out.queries = declaration->queries;
    return out;
  };
  spec.needs_of = needs;
  spec.scored = true;
  spec.layer_unit = policy::unit_is_layer;
  spec.floor = policy::selection_floor;
  spec.overshoot = policy::selection_overshoot;
  spec.cost = [declaration](const Params& params, const policy::CostShape& shape) {
    policy::Scoring scoring;
    scoring.prompt_rows = declaration->sums ? policy::kAllRows : declaration->window(params);
    scoring.decodes = declaration->decodes;
    scoring.decode_rows = declaration->decodes;
    return policy::scored_cost(params, shape, scoring);
  };
  spec.make_eviction = [declaration](const Params& params,
                                     const CacheUnit& unit) -> std::unique_ptr<policy::Eviction> {
    return std::make_unique<PythonEviction>(declaration, params, unit);
  };
  return spec;
}

void bind_score_policies(nb::module_& module) {
  nb::class_<PromptOfCall>(module, "Prompt", "A prompt as a policy sees it; every array is a copy.")
      .def("__len__", [](const PromptOfCall& p) { return p.get().length(); })
      .def_prop_ro(
          "rows", [](const PromptOfCall& p) { return p.rows; },
          "Attention of the last prompt rows, float32 [query heads, rows, prompt]; None without `rows`")
      .def_prop_ro(
          "sums", [](const PromptOfCall& p) { return p.sums; },
          "Attention of all prompt rows in sum, float64 [query heads, prompt]; None without `sums`")
      .def_prop_ro(
          "keys",
          [](const PromptOfCall& p) {
            return stacked(static_cast<std::size_t>(p.unit.n_lanes), [&](int i) { return p.get().keys(i); });
          },
          "float32 [lanes, prompt, head_dim], after RoPE")
      .def_prop_ro(
          "values",
          [](const PromptOfCall& p) {
            return stacked(static_cast<std::size_t>(p.unit.n_lanes),
                           [&](int i) { return p.get().values(i); });
          },
          "float32 [lanes, prompt, value_dim]")
      .def_prop_ro(
          "queries",
          [](const PromptOfCall& p) {
            return stacked(static_cast<std::size_t>(p.unit.n_query_heads()),
                           [&](int i) { return p.get().queries(i); });
          },
          "float32 [query heads, prompt, head_dim], after RoPE, before the scale")
      .def_prop_ro(
          "scale", [](const PromptOfCall& p) { return p.get().scale(); }, "Factor on q.k before the softmax");
  nb::class_<StepOfCall>(module, "Step", "A generated token that has attended; every array is a copy.")
      .def_prop_ro(
          "position", [](const StepOfCall& s) { return s.get().position; }, "Position of the query")
      .def_prop_ro(
          "own_slot", [](const StepOfCall& s) { return s.get().own_slot; }, "Slot of the query's own token")
      .def_prop_ro(
          "slots",
          [](const StepOfCall& s) {
            const std::span<const Position> slots = s.get().slots;
            return array(std::vector<Position>(slots.begin(), slots.end()), {slots.size()});
          },
          "Position held by each slot, int32 [slots]")
      .def_prop_ro(
          "attention", [](const StepOfCall& s) { return copied(s.get().attention); },
          "The full cache's attention on each slot, float32 [query heads, slots]")
      .def_prop_ro(
          "mass",
          [](const StepOfCall& s) {
            const std::span<const double> mass = s.get().mass;
            return array(std::vector<double>(mass.begin(), mass.end()), {mass.size()});
          },
          "Sum of each such row, float64 [query heads]; attention / mass is the compressed cache's")
      .def_prop_ro(
          "keys", [](const StepOfCall& s) { return copied(s.get().keys); }, "float32 [lanes, head_dim]")
      .def_prop_ro(
          "values", [](const StepOfCall& s) { return copied(s.get().values); }, "float32 [lanes, value_dim]");
}

}  // namespace kvsim::python
