#include "tools/python/core/python_policies.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "policies/builtin.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_errors.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::CacheUnit;
using policy::Params;

/// "ValueError: ...".
std::string description(nb::handle exception) {
  return text_of(exception.type().attr("__name__")) + ": " + text_of(exception);
}

/// What Python sees of a prompt: copies, made when they are asked for, while the call lasts that was given
/// it. Python owns it and may keep it for longer.
struct PromptOfCall {
  const policy::Prompt* prompt = nullptr;  ///< null: the call is over
  CacheUnit unit;
  nb::object rows, sums;

  const policy::Prompt& get() const {
    if (prompt == nullptr)
      usage_error("is gone once the call has returned that was given it", "prompt",
                  "Keep the arrays that you took from it.");
    return *prompt;
  }
};

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
  return owned_array(std::move(numbers), {n, rows, cols});
}

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

/// Evictions and presets have names of their own, what follows them has others.
bool is_taken(const Declaration& declaration) {
  const policy::Registry& builtin = policy::builtin();
  if (declaration.kind != "eviction") return builtin.find_part(declaration.name) != nullptr;
  return builtin.find_policy(policy::Kind::eviction, declaration.name) != nullptr ||
         builtin.find_preset(declaration.name) != nullptr;
}

}  // namespace

void PolicyFailures::keep(const std::string& where, nb::python_error& error) {
  const nb::gil_scoped_acquire lock;
  const std::lock_guard guard(mutex_);
  const Error told(ErrorKind::usage, description(error.value()), where);
  if (!error_) {
    error_ = told;
    exception_ = nb::borrow(error.value());
  }
  throw told;
}

void PolicyFailures::raise() {
  if (!error_) return;
  // The exception knows the frames that it came through, which may own this object.
  const Error told = *std::exchange(error_, std::nullopt);
  const nb::object cause = std::exchange(exception_, nb::object());
  throw_policy_error(told, cause);
}

policy::Needs Declaration::needs(const Params& params) const {
  policy::Needs out;
  out.prompt_rows = sums                  ? policy::RowNeed::all
                    : rows.of(params) > 0 ? policy::RowNeed::window
                                          : policy::RowNeed::none;
  out.decode_rows = has_observe;
  out.keys = keys;
  out.values = values;
  out.queries = queries;
  return out;
}

std::string Declaration::place(const CacheUnit& unit, const char* method) const {
  return name + ": layer " + std::to_string(unit.layer) + ", KV head " + std::to_string(unit.first_kv_head) +
         ": " + method + "()";
}

nb::object Declaration::instance(const Params& params, const nb::dict& shape) const {
  nb::dict given;
  for (const ParamValue& value : params.entries) {
    const nb::str key(value.name.data(), value.name.size());
    if (value.type == ParamType::count)
      given[key] = value.whole;
    else if (value.type == ParamType::flag)
      given[key] = value.number != 0;
    else if (value.type == ParamType::real)
      given[key] = value.number;
    else
      given[key] = value.text;
  }
  return written->attr("_with")(given, shape);
}

nb::object Declaration::instance(const Params& params, const CacheUnit* unit) const {
  nb::dict shape;
  if (unit != nullptr) {
    shape["layer"] = unit->layer;
    shape["n_layers"] = unit->n_layers;
    shape["kv_head"] = unit->first_kv_head;
    shape["n_lanes"] = unit->n_lanes;
    shape["group"] = unit->group;
    shape["head_dim"] = unit->head_dim;
    shape["value_dim"] = unit->value_dim;
    shape["span"] = unit->span;
    shape["seed"] = unit->seed;
  }
  return instance(params, shape);
}

std::shared_ptr<nb::object> held(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* dropped) {
            const nb::gil_scoped_acquire lock;
            delete dropped;
          }};
}

std::string text_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object));
}

nb::object copied(const MatrixView& matrix) {
  std::vector<float> numbers;
  for (std::size_t r = 0; r < matrix.rows; ++r)
    numbers.insert(numbers.end(), matrix.row(r).begin(), matrix.row(r).end());
  return owned_array(std::move(numbers), {matrix.rows, matrix.cols});
}

nb::object real_array(nb::handle returned, const char* type, const std::string& where) {
  const nb::object numpy = nb::module_::import_("numpy");
  if (nb::cast<bool>(numpy.attr("iscomplexobj")(returned)))
    usage_error("returned complex numbers", where, "Say which real number is meant: abs(x), x.real.");
  return numpy.attr("ascontiguousarray")(returned, nb::arg("dtype") = type);
}

std::vector<double> doubles_from(const nb::object& returned, std::size_t wanted, const std::string& where,
                                 const char* hint) {
  const nb::object doubles = real_array(returned, "float64", where);
  nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu> numbers;
  const bool fits = nb::cast<std::size_t>(doubles.attr("ndim")) == 1 && nb::try_cast(doubles, numbers);
  if (!fits || (wanted > 0 && numbers.shape(0) != wanted))
    usage_error("returned an array of shape " + text_of(doubles.attr("shape")) + " where (" +
                    (wanted > 0 ? std::to_string(wanted) + "," : "n,") + ") is expected",
                where, hint);
  std::vector<double> out(numbers.data(), numbers.data() + numbers.shape(0));
  const auto nan = std::ranges::find_if(out, [](double x) { return std::isnan(x); });
  if (nan != out.end())
    usage_error("returned NaN as number " + std::to_string(nan - out.begin()), where,
                "A number may be infinite, but it must have an order.");
  return out;
}

PromptRecorder::PromptRecorder(SharedDeclaration declaration, const Params& params, const CacheUnit& unit)
    : declaration_(std::move(declaration)),
      unit_(unit),
      window_(declaration_->rows.of(params)),
      sums_(unit.n_query_heads(), policy::kAllRows) {}

void PromptRecorder::observe_columns(const policy::PromptColumns& columns) {
  if (declaration_->sums) sums_.take(columns.query_head, columns.sum);
}

void PromptRecorder::observe(const policy::PromptRows& block) {
  if (declaration_->sums) sums_.add(block);
  if (window_ == 0) return;
  const std::size_t length = block.prompt_length, rows = std::min(window_, length), first = length - rows;
  rows_.resize(static_cast<std::size_t>(unit_.n_query_heads()) * rows * length);
  for (std::size_t i = 0; i < block.p.rows; ++i) {
    const std::size_t row = block.first_query + i;
    if (row < first) continue;
    const std::span<const float> from = block.p.row(i);
    const std::size_t to = (static_cast<std::size_t>(block.query_head) * rows + row - first) * length;
    std::ranges::copy(from, rows_.begin() + static_cast<std::ptrdiff_t>(to));
  }
}

nb::object PromptRecorder::call(nb::handle object, const char* method, const policy::Prompt& prompt) {
  const auto heads = static_cast<std::size_t>(unit_.n_query_heads());
  auto* const of_call = new PromptOfCall{&prompt, unit_, nb::none(), nb::none()};
  const nb::object shown = nb::cast(of_call, nb::rv_policy::take_ownership);
  if (window_ > 0)
    of_call->rows =
        owned_array(std::move(rows_), {heads, std::min(window_, prompt.length()), prompt.length()});
  if (declaration_->sums) {
    std::vector<double> sums;
    for (std::size_t head = 0; head < heads; ++head)
      sums.insert(sums.end(), sums_.head(head).begin(), sums_.head(head).end());
    of_call->sums = owned_array(std::move(sums), {heads, prompt.length()});
  }
  try {
    nb::object returned = object.attr(method)(shown);
    of_call->prompt = nullptr;
    return returned;
  } catch (...) {
    of_call->prompt = nullptr;
    throw;
  }
}

policy::PolicySpec policy_spec(nb::handle written, PolicyFailures& failures) {
  const nb::dict says = nb::cast<nb::dict>(written.attr("_declaration")());
  auto read = std::make_shared<Declaration>();
  read->name = nb::cast<std::string>(says["name"]);
  read->kind = nb::cast<std::string>(says["kind"]);
  read->written = held(nb::borrow(written));
  const auto count = [&](const char* name) -> DeclaredCount {
    const nb::object said = says[name];
    if (nb::isinstance<nb::str>(said)) return {.param = nb::cast<std::string>(said)};
    return {.fixed = nb::cast<std::size_t>(said)};
  };
  read->rows = count("rows");
  const auto flag = [&](const char* name) { return nb::cast<bool>(says[name]); };
  read->sums = flag("sums");
  read->keys = flag("keys");
  read->values = flag("values");
  read->queries = flag("queries");
  read->has_observe = flag("has_observe");
  read->has_profile = flag("has_profile");
  read->inexact = flag("inexact");
  read->scores = flag("scores");
  read->exact = count("exact");
  read->block = count("block");
  read->has_prepare = flag("has_prepare");
  std::tie(read->make_ops, read->read_ops) = nb::cast<std::pair<double, double>>(says["operations"]);
  read->failures = &failures;
  const SharedDeclaration declaration = std::move(read);
  if (is_taken(*declaration))
    usage_error("is the name of a policy that kvsim has", declaration->name,
                "Give the class another `name`.");

  policy::PolicySpec spec;
  spec.name = declaration->name;
  spec.summary = nb::cast<std::string>(says["summary"]);
  spec.paper = nb::cast<std::string>(says["paper"]);
  spec.details = nb::cast<std::string>(says["details"]);
  for (const auto [key, fallback] : nb::cast<nb::dict>(says["params"]))
    spec.params.push_back(param_of(nb::cast<std::string>(key), fallback));
  spec.needs_of = [declaration](const Params& params) { return declaration->needs(params); };
  if (declaration->kind == "allocation")
    complete_allocation(spec, declaration);
  else if (declaration->kind == "representation")
    complete_representation(spec, declaration);
  else
    complete_score_policy(spec, declaration);
  return spec;
}

void bind_policies(nb::module_& module) {
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
}

}  // namespace kvsim::python
