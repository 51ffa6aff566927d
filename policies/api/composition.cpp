#include "policies/api/composition.hpp"

#include <algorithm>
#include <map>

#include "policies/api/call_syntax.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/param_value.hpp"
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
  return "policy " + in_quotes(call_text(call));
}

std::vector<std::string> first_names(const Registry& registry) {
  std::vector<std::string> names = registry.names(Kind::eviction), presets = registry.preset_names();
  names.insert(names.end(), presets.begin(), presets.end());
  return names;
}

/// What may stand after '+'.
std::vector<std::string> part_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const Kind kind : kPartKinds)
    for (std::string& name : registry.names(kind)) names.push_back(std::move(name));
  return names;
}

/// parse_calls(), with names as the registry spells them.
std::vector<Call> read_calls(std::string_view text, const Registry& registry) {
  std::vector<Call> calls = parse_calls(text);
  const std::vector<std::string> first = first_names(registry), parts = part_names(registry);
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (const std::vector<std::string>* names : {i == 0 ? &first : &parts, i == 0 ? &parts : &first})
      if (const std::optional<std::string> name = spelled(calls[i].name, *names, kNameEnding)) {
        calls[i].name = *name;
        break;
      }
  return calls;
}

void refuse_replacement(const Call& call, const Registry& registry) {
  if (registry.find_policy(Kind::replacement, call.name))
    usage_error(call.name +
                    " replaces blocks of a prefix cache, whole prompts at a time; it does not choose tokens "
                    "of a sequence",
                place(call), "It stands alone: kvsim requests replay --policy " + call.name);
}

const PolicySpec& find_eviction(const Call& call, const Registry& registry) {
  if (const PolicySpec* spec = registry.find_policy(Kind::eviction, call.name)) return *spec;
  if (const PolicySpec* part = registry.find_part(call.name)) {
    const bool allocates = part->kind() == Kind::allocation;
    usage_error(call.name + " is " + a_kind(part->kind()) + ": it needs an eviction before it", place(call),
                std::string("Write e.g. ") + (allocates ? "snapkv+" : "full+") + call.name);
  }
  refuse_replacement(call, registry);
  registry.refuse_absent(call.name, place(call));
  usage_error("unknown policy " + in_quotes(call.name), place(call),
              suggestion(call.name, first_names(registry)));
}

const PolicySpec& find_part(const Call& call, const Registry& registry) {
  if (const PolicySpec* spec = registry.find_part(call.name)) return *spec;
  if (registry.find_preset(call.name) || registry.find_policy(Kind::eviction, call.name))
    usage_error("two evictions: " + call.name +
                    " stands after '+', where an allocation, a representation or a selection is expected",
                place(call), suggestion(call.name, part_names(registry)));
  refuse_replacement(call, registry);
  registry.refuse_absent(call.name, place(call));
  usage_error("unknown allocation, representation or selection " + in_quotes(call.name), place(call),
              suggestion(call.name, part_names(registry)));
}

/// Oracles that have a loss curve with some parameters.
std::vector<std::string> curve_names(const Registry& registry) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (const auto* oracle = spec.as<OracleRule>(); oracle && oracle->loss_curve) out.push_back(spec.name);
  return out;
}

std::vector<std::string> scored_names(const Registry& registry) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.scored()) out.push_back(spec.name);
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

/// The eviction of the first call, and what the others name.
std::vector<const PolicySpec*> specs_of(const std::vector<Call>& calls, const Registry& registry) {
  std::vector<const PolicySpec*> specs{&find_eviction(calls[0], registry)};
  for (std::size_t i = 1; i < calls.size(); ++i) specs.push_back(&find_part(calls[i], registry));
  return specs;
}

std::string calls_text(const std::vector<Call>& calls) {
  std::vector<std::string> texts;
  for (const Call& call : calls) texts.push_back(call_text(call));
  return joined(texts, "+");
}

/// The argument of a preset goes to the part that has a parameter of this name.
void override_argument(const Call& preset, const Call::Argument& argument, std::vector<Call>& calls,
                       const std::vector<const PolicySpec*>& specs) {
  std::vector<std::size_t> owners;
  std::vector<std::string> known;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (find_param(*specs[i], argument.name)) owners.push_back(i);
    for (const std::string& name : param_names(specs[i]->params)) known.push_back(name);
  }
  if (owners.size() > 1)
    usage_error("parameter " + in_quotes(argument.name) + " of " + preset.name + " could be " +
                    specs[owners[0]]->name + "'s or " + specs[owners[1]]->name + "'s",
                place(preset), "Write the parts out: " + calls_text(calls));
  if (owners.empty())
    usage_error("unknown parameter " + in_quotes(argument.name) + " of " + preset.name, place(preset),
                param_suggestion(argument.name, known));
  std::vector<Call::Argument>& arguments = calls[owners[0]].arguments;
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
  const std::vector<const PolicySpec*> specs = specs_of(calls, registry);
  for (const Call::Argument& argument : call.arguments) override_argument(call, argument, calls, specs);
  return calls;
}

Part make_part(const PolicySpec& spec, const Call& call, const Registry& registry);

/// The value of a ParamType::policy: one eviction, or a preset that is one, that ranks by a score.
std::shared_ptr<const Part> policy_value(const ParamSpec& param, const std::string& text,
                                         const std::string& where, const Registry& registry) {
  std::vector<Call> calls = read_calls(text, registry);
  if (const PresetSpec* preset = registry.find_preset(calls[0].name); preset && calls.size() == 1)
    calls = expand(*preset, calls[0], registry);
  if (calls.size() > 1)
    usage_error(param.name + "=" + text + " is not legal: " + param.name + " is one eviction", where,
                "An allocation goes behind the whole policy: ...(" + param.name + "=...)+pyramid");
  auto part = std::make_shared<const Part>(make_part(find_eviction(calls[0], registry), calls[0], registry));
  if (!part->spec->scored())
    usage_error(param.name + "=" + text + " is not legal: " + part->spec->name + " does not rank by a score",
                where, "Those that do: " + joined(scored_names(registry)));
  return part;
}

/// Every parameter of the spec, typed or default, in the spec's order.
Part make_part(const PolicySpec& spec, const Call& call, const Registry& registry) {
  for (const Call::Argument& argument : call.arguments)
    if (!find_param(spec, argument.name))
      usage_error("unknown parameter " + in_quotes(argument.name) + " of " + spec.name, place(call),
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
    // Of two policies one may be the other: first=base.
    const auto other = part.params.parts.find(text);
    const bool same = other != part.params.parts.end();
    const std::shared_ptr<const Part> own =
        same ? other->second : policy_value(param, text, place(call), registry);
    part.params.entries.push_back(
        {.name = param.name, .text = same ? text : own->text(), .type = param.type});
    part.params.parts[param.name] = own;
  }
  if (spec.check) spec.check(part.params);
  return part;
}

/// Throws Error(usage) where the allocation cannot split for the eviction.
void check_allocation(const Composition& composition, std::string_view text, const Registry& registry) {
  const Part& eviction = composition.eviction;
  const PolicySpec& allocation = *composition.allocation.spec;
  const std::string where = "policy " + in_quotes(text);
  if (eviction.spec->own_budget() && allocation.name != kDefaultAllocation)
    usage_error(eviction.spec->name + " decides itself how much it keeps: there is no budget for " +
                    allocation.name + " to split",
                where);
  const bool by_losses = allocation.uses_losses() && eviction.has_loss_curve();
  if (allocation.uses_losses() && eviction.spec->is_oracle() && !by_losses)
    usage_error(allocation.name + " splits by what an oracle loses at every budget, and " + eviction.text() +
                    " has no exact curve of that which falls by less and less",
                where, "These have: " + joined(curve_names(registry)));
  if (allocation.uses_scores() && !eviction.spec->scored() && !by_losses)
    usage_error(allocation.name + " splits by the eviction's scores, and " + eviction.spec->name +
                    " does not rank by one",
                where, "Those that do: " + joined(scored_names(registry)));
}

}  // namespace

std::string respelled(std::string_view text, const Registry& registry) {
  const std::string read = calls_text(read_calls(text, registry));
  return read == calls_text(parse_calls(text)) ? std::string(text) : read;
}

Composition parse_composition(std::string_view text, const Registry& registry) {
  const std::vector<Call> typed = read_calls(text, registry);
  std::vector<Call> calls = typed;
  Composition out;
  std::size_t of_preset = 0;
  if (const PresetSpec* preset = registry.find_preset(typed[0].name)) {
    calls = expand(*preset, typed[0], registry);
    of_preset = calls.size();
    calls.insert(calls.end(), typed.begin() + 1, typed.end());
  }
  const std::vector<const PolicySpec*> specs = specs_of(calls, registry);
  out.eviction = make_part(*specs[0], calls[0], registry);
  std::map<Kind, const Call*> present;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    const Kind kind = specs[i]->kind();
    const auto [known, first] = present.emplace(kind, &calls[i]);
    if (!first && i >= of_preset && of_preset > 0)
      usage_error(typed[0].name + " already has " + a_kind(kind), "policy " + in_quotes(text),
                  "Write its parts out: " + call_text(calls[0]) + "+" + call_text(calls[i]));
    if (!first)
      usage_error(
          "two " + std::string(kind_name(kind)) + "s: " + known->second->name + " and " + calls[i].name,
          "policy " + in_quotes(text), "One of each kind at most.");
    Part part = make_part(*specs[i], calls[i], registry);
    if (kind == Kind::allocation)
      out.allocation = std::move(part);
    else
      (kind == Kind::representation ? out.representation : out.selection) = std::move(part);
  }
  if (!present.contains(Kind::allocation)) {
    const Call uniform{.name = kDefaultAllocation, .arguments = {}};
    out.allocation = make_part(find_part(uniform, registry), uniform, registry);
  }
  check_allocation(out, text, registry);
  if (out.representation && out.eviction.spec->is_oracle())
    usage_error(out.eviction.spec->name + " is a bound for numbers that are stored as they come, and " +
                    out.representation->spec->name + " stores others",
                "policy " + in_quotes(text));
  if (out.selection && out.eviction.spec->is_oracle())
    usage_error(out.eviction.spec->name +
                    " is a bound for queries that read everything that is stored, and " +
                    out.selection->spec->name + " reads a part",
                "policy " + in_quotes(text));
  if (out.layer_unit() && !out.eviction.layer_unit() && !out.eviction.spec->keeps_all()) {
    const bool stores = out.representation && out.representation->layer_unit();
    usage_error((stores ? out.representation : out.selection)->spec->name + (stores ? " stores" : " reads") +
                    " all KV heads of a layer together, and " + out.eviction.spec->name +
                    " keeps other tokens in each",
                "policy " + in_quotes(text),
                "Say unit=layer where the eviction has it, or full, which keeps everything.");
  }

  out.name = of_preset > 0 ? registry.find_preset(typed[0].name)->name : out.eviction.spec->name;
  for (const Kind kind : kPartKinds)
    for (std::size_t i = std::max<std::size_t>(of_preset, 1); i < calls.size(); ++i)
      if (specs[i]->kind() == kind && specs[i]->name != kDefaultAllocation) out.name += "+" + specs[i]->name;
  out.params = out.eviction.text() + "+" + out.allocation.text();
  if (out.representation) out.params += "+" + out.representation->text();
  if (out.selection) out.params += "+" + out.selection->text();
  return out;
}

Part parse_replacement(std::string_view text, const Registry& registry) {
  std::vector<Call> calls = parse_calls(text, "Write NAME(name=value,...), e.g. slru(protected=0.8)");
  if (calls.size() > 1)
    usage_error("a prefix cache has one replacement policy, and nothing stands behind it",
                "policy " + in_quotes(text), "Give several policies one by one.");
  if (const auto name = spelled(calls[0].name, registry.names(Kind::replacement))) calls[0].name = *name;
  if (const PolicySpec* spec = registry.find_policy(Kind::replacement, calls[0].name))
    return make_part(*spec, calls[0], registry);
  if (registry.find_policy(Kind::eviction, calls[0].name) || registry.find_part(calls[0].name) ||
      registry.find_preset(calls[0].name))
    usage_error(
        calls[0].name + " chooses tokens of one sequence; a prefix cache needs a policy that replaces blocks",
        place(calls[0]), suggestion(calls[0].name, registry.names(Kind::replacement)));
  usage_error("unknown replacement policy " + in_quotes(calls[0].name), place(calls[0]),
              suggestion(calls[0].name, registry.names(Kind::replacement)));
}

}  // namespace kvsim::policy
