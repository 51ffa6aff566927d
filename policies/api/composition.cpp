#include "policies/api/composition.hpp"

#include <algorithm>

#include "policies/api/call_syntax.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::policy {
namespace {

constexpr const char* kDefaultAllocation = "uniform";

std::string call_text(const Call& call) {
  std::string arguments;
  for (const Call::Argument& a : call.arguments)
    arguments += (arguments.empty() ? "" : ",") + a.name + "=" + a.value;
  return arguments.empty() ? call.name : call.name + "(" + arguments + ")";
}

std::string place(const Call& call) {
  return "policy " + quoted(call_text(call));
}

std::vector<std::string> first_names(const Registry& registry) {
  std::vector<std::string> names = registry.names(Kind::eviction), presets = registry.preset_names();
  names.insert(names.end(), presets.begin(), presets.end());
  return names;
}

const PolicySpec& find_eviction(const Call& call, const Registry& registry) {
  if (const PolicySpec* spec = registry.find_policy(Kind::eviction, call.name)) return *spec;
  if (registry.find_policy(Kind::allocation, call.name))
    usage_error(call.name + " is an allocation: it needs an eviction before it", place(call),
                "Write e.g. snapkv+" + call.name);
  usage_error("unknown policy " + quoted(call.name), place(call),
              suggestion(call.name, first_names(registry)));
}

const PolicySpec& find_allocation(const Call& call, const Registry& registry) {
  if (const PolicySpec* spec = registry.find_policy(Kind::allocation, call.name)) return *spec;
  const std::vector<std::string> known = registry.names(Kind::allocation);
  if (registry.find_preset(call.name) || registry.find_policy(Kind::eviction, call.name))
    usage_error("two evictions: " + call.name + " stands after '+', where an allocation is expected",
                place(call), suggestion(call.name, known));
  usage_error("unknown allocation " + quoted(call.name), place(call), suggestion(call.name, known));
}

/// Oracles that have a loss curve with some parameters.
std::vector<std::string> curve_names(const Registry& registry) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.loss_curve) out.push_back(spec.name);
  return out;
}

std::vector<std::string> scored_names(const Registry& registry) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.scored) out.push_back(spec.name);
  return out;
}

const ParamSpec* find_param(const PolicySpec& spec, std::string_view name) {
  const auto param = std::find_if(spec.params.begin(), spec.params.end(),
                                  [&](const ParamSpec& p) { return p.name == name; });
  return param == spec.params.end() ? nullptr : &*param;
}

std::string param_suggestion(std::string_view name, const std::vector<std::string>& known) {
  return known.empty() ? "It takes no parameters." : suggestion(name, known);
}

/// The argument of a preset goes to the part that has a parameter of this name.
void override_argument(const Call& preset, const Call::Argument& argument, std::vector<Call>& calls,
                       const PolicySpec& eviction, const PolicySpec* allocation) {
  const bool first = find_param(eviction, argument.name),
             second = allocation && find_param(*allocation, argument.name);
  if (first && second)
    usage_error("parameter " + quoted(argument.name) + " of " + preset.name + " could be " + eviction.name +
                    "'s or " + allocation->name + "'s",
                place(preset), "Write the parts out: " + call_text(calls[0]) + "+" + call_text(calls[1]));
  if (!first && !second) {
    std::vector<std::string> known = param_names(eviction.params);
    if (allocation)
      for (const std::string& name : param_names(allocation->params)) known.push_back(name);
    usage_error("unknown parameter " + quoted(argument.name) + " of " + preset.name, place(preset),
                param_suggestion(argument.name, known));
  }
  std::vector<Call::Argument>& arguments = calls[first ? 0 : 1].arguments;
  const auto same = std::find_if(arguments.begin(), arguments.end(),
                                 [&](const Call::Argument& a) { return a.name == argument.name; });
  if (same == arguments.end())
    arguments.push_back(argument);
  else
    same->value = argument.value;
}

/// The calls a preset stands for, with the parameters given to it.
std::vector<Call> expand(const PresetSpec& preset, const Call& call, const Registry& registry) {
  std::vector<Call> calls = parse_calls(preset.expansion);
  const PolicySpec& eviction = find_eviction(calls[0], registry);
  const PolicySpec* allocation = calls.size() > 1 ? &find_allocation(calls[1], registry) : nullptr;
  for (const Call::Argument& argument : call.arguments)
    override_argument(call, argument, calls, eviction, allocation);
  return calls;
}

Part make_part(const PolicySpec& spec, const Call& call, const Registry& registry);

/// The value of a ParamType::policy: one eviction, or a preset that is one, that ranks by a score.
std::shared_ptr<const Part> policy_value(const ParamSpec& param, const std::string& text,
                                         const std::string& where, const Registry& registry) {
  std::vector<Call> calls = parse_calls(text);
  if (const PresetSpec* preset = registry.find_preset(calls[0].name); preset && calls.size() == 1)
    calls = expand(*preset, calls[0], registry);
  if (calls.size() > 1)
    usage_error(param.name + "=" + text + " is not legal: " + param.name + " is one eviction", where,
                "An allocation goes behind the whole policy: ...(" + param.name + "=...)+pyramid");
  auto part = std::make_shared<const Part>(make_part(find_eviction(calls[0], registry), calls[0], registry));
  if (!part->spec->scored)
    usage_error(param.name + "=" + text + " is not legal: " + part->spec->name + " does not rank by a score",
                where, "Those that do: " + joined(scored_names(registry)));
  return part;
}

/// Every parameter of the spec, typed or default, in the spec's order.
Part make_part(const PolicySpec& spec, const Call& call, const Registry& registry) {
  for (const Call::Argument& argument : call.arguments)
    if (!find_param(spec, argument.name))
      usage_error("unknown parameter " + quoted(argument.name) + " of " + spec.name, place(call),
                  param_suggestion(argument.name, param_names(spec.params)));
  Part part{.spec = &spec, .params = {}};
  for (const ParamSpec& param : spec.params) {
    const auto typed = std::find_if(call.arguments.begin(), call.arguments.end(),
                                    [&](const Call::Argument& a) { return a.name == param.name; });
    const std::string& text = typed == call.arguments.end() ? param.fallback : typed->value;
    if (param.required && text.empty())
      usage_error(spec.name + " needs " + param.name + "=...: " + param.help, place(call));
    if (param.type != ParamType::policy) {
      part.params.entries.push_back(parse_value(param, text, place(call)));
      continue;
    }
    const std::shared_ptr<const Part> own = policy_value(param, text, place(call), registry);
    part.params.entries.push_back({.name = param.name, .text = own->text(), .type = param.type});
    part.params.parts[param.name] = own;
  }
  if (spec.check) spec.check(part.params);
  return part;
}

}  // namespace

Composition parse_composition(std::string_view text, const Registry& registry) {
  std::vector<Call> calls = parse_calls(text);
  Composition out;
  if (const PresetSpec* preset = registry.find_preset(calls[0].name)) {
    std::vector<Call> expanded = expand(*preset, calls[0], registry);
    if (expanded.size() > 1 && calls.size() > 1)
      usage_error(preset->name + " already has an allocation", "policy " + quoted(text),
                  "Write its eviction out: " + call_text(expanded[0]) + "+" + call_text(calls[1]));
    expanded.insert(expanded.end(), calls.begin() + 1, calls.end());
    out.name = preset->name;
    if (calls.size() > 1 && calls[1].name != kDefaultAllocation) out.name += "+" + calls[1].name;
    calls = std::move(expanded);
  }
  if (calls.size() > 2)
    usage_error("more than one '+'", "policy " + quoted(text), "One eviction and at most one allocation.");
  if (calls.size() == 1) calls.push_back({.name = kDefaultAllocation, .arguments = {}});

  out.eviction = make_part(find_eviction(calls[0], registry), calls[0], registry);
  out.allocation = make_part(find_allocation(calls[1], registry), calls[1], registry);
  const std::string &eviction = out.eviction.spec->name, &allocation = out.allocation.spec->name;
  if (out.eviction.spec->own_budget && allocation != kDefaultAllocation)
    usage_error(
        eviction + " decides itself how much it keeps: there is no budget for " + allocation + " to split",
        "policy " + quoted(text));
  const bool by_losses = out.allocation.spec->uses_losses && out.eviction.has_loss_curve();
  if (out.allocation.spec->uses_losses && out.eviction.spec->make_oracle && !by_losses)
    usage_error(allocation + " splits by what an oracle loses at every budget, and " + out.eviction.text() +
                    " has no exact curve of that which falls by less and less",
                "policy " + quoted(text), "These have: " + joined(curve_names(registry)));
  if (out.allocation.spec->uses_scores && !out.eviction.spec->scored && !by_losses)
    usage_error(allocation + " splits by the eviction's scores, and " + eviction + " does not rank by one",
                "policy " + quoted(text), "Those that do: " + joined(scored_names(registry)));
  if (out.name.empty()) out.name = allocation == kDefaultAllocation ? eviction : eviction + "+" + allocation;
  out.params = out.eviction.text() + "+" + out.allocation.text();
  return out;
}

}  // namespace kvsim::policy
