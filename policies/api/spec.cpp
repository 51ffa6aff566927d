#include "policies/api/spec.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {

const Params::Entry& Params::find(std::string_view name, ParamType type) const {
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  if (entry == entries.end())
    bug("policy asks for parameter " + std::string(name) + ", which its spec lacks");
  if (entry->type != type)
    bug("policy asks for parameter " + std::string(name) + " as another type than its spec's");
  return *entry;
}

Needs merged(const Needs& a, const Needs& b) {
  Needs out;
  out.prompt_rows = std::max(a.prompt_rows, b.prompt_rows);
  out.decode_rows = a.decode_rows || b.decode_rows;
  out.keys = a.keys || b.keys;
  out.values = a.values || b.values;
  out.queries = a.queries || b.queries;
  out.classes = a.classes || b.classes;
  out.output_weights = a.output_weights || b.output_weights;
  return out;
}

bool Params::has(std::string_view name) const {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
}

std::size_t Params::count(std::string_view name) const {
  return static_cast<std::size_t>(find(name, ParamType::count).number);
}

double Params::real(std::string_view name) const {
  return find(name, ParamType::real).number;
}

bool Params::flag(std::string_view name) const {
  return find(name, ParamType::flag).number != 0;
}

const std::string& Params::word(std::string_view name) const {
  for (const ParamType type : {ParamType::pool, ParamType::text})
    for (const Entry& entry : entries)
      if (entry.name == name && entry.type == type) return entry.text;
  return find(name, ParamType::choice).text;
}

const Part& Params::part(std::string_view name) const {
  return *find(name, ParamType::policy).part;
}

std::string Params::text() const {
  std::string out;
  for (const Entry& entry : entries) out += (out.empty() ? "" : ",") + entry.name + "=" + entry.text;
  return out;
}

bool complete(const PolicySpec& spec) {
  return std::none_of(spec.params.begin(), spec.params.end(), [](const ParamSpec& param) {
    return param.type == ParamType::text && param.fallback.empty();
  });
}

std::string Part::text() const {
  return spec->name + "(" + params.text() + ")";
}

std::function<Protection(std::size_t)> Part::protection(std::size_t prompt) const {
  if (!spec->make_eviction) return [](std::size_t) { return Protection{}; };
  const std::shared_ptr<const Eviction> asked = make_eviction({.head_dim = 1, .value_dim = 1});
  return [asked, prompt](std::size_t budget) { return asked->protection(budget, prompt); };
}

std::size_t Part::floor() const {
  return spec->floor ? std::max<std::size_t>(spec->floor(params), 1) : 1;
}

std::optional<Holding> Part::holding() const {
  if (spec->own_budget) return {};
  // Whether a policy appends does not depend on the shape.
  constexpr CostShape kAnyShape{.n_layers = 1,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 1,
                                .value_dim = 1,
                                .hidden = 1,
                                .prompt = 2,
                                .budget = 1};
  const bool appends = spec->appends ? spec->appends(params) : cost(kAnyShape).appends;
  return appends ? Holding::append_only : overshoot() > 0 ? Holding::overshoot : Holding::managed;
}

std::string_view holding_name(Holding holding) {
  switch (holding) {
    case Holding::managed:
      return "managed";
    case Holding::append_only:
      return "append_only";
    case Holding::overshoot:
      return "overshoot";
  }
  bug("unknown holding");
}

}  // namespace kvsim::policy
