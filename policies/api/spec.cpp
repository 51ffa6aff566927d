#include "policies/api/spec.hpp"

#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

Needs merged(const Needs& a, const Needs& b) {
  Needs out;
  out.prompt_rows = std::max(a.prompt_rows, b.prompt_rows);
  out.decode_rows = a.decode_rows || b.decode_rows;
  out.keys = a.keys || b.keys;
  out.values = a.values || b.values;
  out.queries = a.queries || b.queries;
  out.positions = a.positions || b.positions;
  out.classes = a.classes || b.classes;
  out.output_weights = a.output_weights || b.output_weights;
  out.second_pass = a.second_pass || b.second_pass;
  out.repeated_queries = a.repeated_queries || b.repeated_queries;
  out.surprises = a.surprises || b.surprises;
  return out;
}

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {"eviction", "allocation", "representation", "selection",
                                         "replacement"};
  return kNames[static_cast<std::size_t>(kind)];
}

Kind PolicySpec::kind() const {
  return rule.index() < 2 ? Kind::eviction : static_cast<Kind>(rule.index() - 1);
}

std::string a_kind(Kind kind) {
  const bool vowel = kind == Kind::eviction || kind == Kind::allocation;
  return (vowel ? "an " : "a ") + std::string(kind_name(kind));
}

const Part& Params::part(std::string_view name) const {
  find(name, ParamType::policy);
  return *parts.find(name)->second;
}

bool complete(const PolicySpec& spec, bool second_pass) {
  return (second_pass || !spec.needs.second_pass) &&
         std::ranges::none_of(spec.params, [](const ParamSpec& param) { return param.required; });
}

std::string Part::text() const {
  return spec->name + "(" + params.text() + ")";
}

bool Part::layer_unit() const {
  if (spec->layer_unit) return spec->layer_unit(params);
  return params.has("unit") && params.is("unit", "layer");
}

Ledger Part::ledger(const StorageShape& shape, std::uint64_t kept, std::uint64_t appended) const {
  const RepresentationRule& of = rule<RepresentationRule>();
  return of.ledger ? of.ledger(params, shape, {kept, appended}) : exact_ledger(shape, kept + appended);
}

Ledger Part::ledger_of_layers(StorageShape shape, std::uint64_t kept, std::uint64_t appended) const {
  Ledger sum;
  if (rule<RepresentationRule>().by_depth) {
    for (shape.layer = 0; shape.layer < shape.n_layers; ++shape.layer) sum += ledger(shape, kept, appended);
    return sum;
  }
  shape.layer = 0;
  const Ledger one = ledger(shape, kept, appended);
  const std::uint64_t n = shape.n_layers;
  return {n * one.exact,   n * one.codes,  n * one.parameters, n * one.outliers,
          n * one.indices, n * one.tables, n * one.shared,     n * one.host};
}

std::function<Protection(std::size_t, std::size_t)> Part::protection() const {
  if (spec->is_oracle()) return [](std::size_t, std::size_t) { return Protection{}; };
  const std::shared_ptr<const Eviction> asked = make_eviction({.head_dim = 1, .value_dim = 1});
  return [asked](std::size_t budget, std::size_t prompt) { return asked->protection(budget, prompt); };
}

std::size_t Part::floor() const {
  if (spec->is_oracle()) return 1;
  const EvictionRule& of = rule<EvictionRule>();
  return std::max<std::size_t>(of.floor ? of.floor(params) : KeepRule::of(params).floor(), 1);
}

std::size_t Part::overshoot() const {
  if (spec->is_oracle()) return 0;
  const EvictionRule& of = rule<EvictionRule>();
  return of.overshoot ? of.overshoot(params) : KeepRule::of(params).post ? 1 : 0;
}

std::optional<Holding> Part::holding() const {
  if (spec->own_budget()) return {};
  // Whether a policy appends does not depend on the shape.
  constexpr CostShape kAnyShape{.n_layers = 1,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 1,
                                .value_dim = 1,
                                .hidden = 1,
                                .prompt = 2,
                                .budget = 1};
  const bool appends = spec->is_oracle() ? told(rule<OracleRule>().appends) : cost(kAnyShape).appends;
  return appends ? Holding::append_only : overshoot() > 0 ? Holding::overshoot : Holding::managed;
}

std::string_view holding_name(Holding holding) {
  constexpr std::string_view kNames[] = {"managed", "append_only", "overshoot"};
  return kNames[static_cast<std::size_t>(holding)];
}

}  // namespace kvsim::policy
