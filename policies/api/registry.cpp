#include "policies/api/registry.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::policy {
namespace {

bool is_name(std::string_view text) {
  const auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), legal);
}

void check_params(const PolicySpec& spec) {
  for (std::size_t i = 0; i < spec.params.size(); ++i) {
    const ParamSpec& param = spec.params[i];
    if (!is_name(param.name)) bug("parameter name \"" + param.name + "\" cannot be typed", spec.name);
    for (std::size_t j = 0; j < i; ++j)
      if (spec.params[j].name == param.name) bug("parameter " + param.name + " is declared twice", spec.name);
    if (param.type == ParamType::text || is_list(param.type))
      bug("parameter " + param.name + " may hold commas, which end it in a composition", spec.name);
    if (param.fallback.empty() != param.required)
      bug("parameter " + param.name + " has neither a default nor is it required, or both", spec.name);
    // A policy's default may name one that is added later; a test parses all defaults.
    if (param.type == ParamType::policy) continue;
    try {
      parse_value(param, param.fallback, spec.name);
    } catch (const Error& error) {
      bug(std::string("default value: ") + error.what(), spec.name);
    }
  }
}

bool has_factory(const PolicySpec& spec) {
  const auto* selection = spec.as<SelectionRule>();
  return std::visit([](const auto& rule) { return bool(rule.make); }, spec.rule) &&
         (selection == nullptr || selection->reads);
}

}  // namespace

void Registry::add(PolicySpec spec) {
  std::vector<std::string> wanted = spec.aliases;
  wanted.insert(wanted.begin(), spec.name);
  for (const std::string& name : wanted) {
    if (!is_name(name)) bug("policy name \"" + name + "\" cannot be typed");
    const Kind kind = spec.kind();
    if (kind == Kind::eviction      ? find_policy(kind, name) || find_preset(name)
        : kind == Kind::replacement ? bool(find_policy(kind, name))
                                    : bool(find_part(name)))
      bug("policy name " + name + " is taken");
  }
  if (!has_factory(spec)) bug("no factory", spec.name);
  check_params(spec);
  policies_.push_back(std::move(spec));
}

void Registry::add(PresetSpec preset) {
  if (!is_name(preset.name)) bug("preset name \"" + preset.name + "\" cannot be typed");
  if (find_preset(preset.name) || find_policy(Kind::eviction, preset.name))
    bug("preset name " + preset.name + " is taken");
  presets_.push_back(std::move(preset));
}

void Registry::add(AbsentSpec absent) {
  if (!is_name(absent.name) || find_preset(absent.name) || find_policy(Kind::eviction, absent.name) ||
      find_part(absent.name))
    bug("the name " + absent.name + ", which is refused, is taken");
  absent_.push_back(std::move(absent));
}

void Registry::refuse_absent(std::string_view name, std::string_view where) const {
  for (const AbsentSpec& absent : absent_)
    if (plain_name(absent.name) == plain_name(name))
      usage_error(absent.name + " is not here: " + absent.needs, std::string(where), absent.instead);
}

const PolicySpec* Registry::find_policy(Kind kind, std::string_view name) const {
  for (const PolicySpec& spec : policies_) {
    if (spec.kind() != kind) continue;
    if (spec.name == name || std::find(spec.aliases.begin(), spec.aliases.end(), name) != spec.aliases.end())
      return &spec;
  }
  return nullptr;
}

const PolicySpec* Registry::find_part(std::string_view name) const {
  for (const Kind kind : kPartKinds)
    if (const PolicySpec* spec = find_policy(kind, name)) return spec;
  return nullptr;
}

const PresetSpec* Registry::find_preset(std::string_view name) const {
  const auto preset =
      std::find_if(presets_.begin(), presets_.end(), [&](const PresetSpec& p) { return p.name == name; });
  return preset == presets_.end() ? nullptr : &*preset;
}

std::vector<std::string> Registry::names(Kind kind) const {
  std::vector<std::string> out;
  for (const PolicySpec& spec : policies_) {
    if (spec.kind() != kind) continue;
    out.push_back(spec.name);
    out.insert(out.end(), spec.aliases.begin(), spec.aliases.end());
  }
  return out;
}

std::vector<std::string> Registry::preset_names() const {
  std::vector<std::string> out;
  for (const PresetSpec& preset : presets_) out.push_back(preset.name);
  return out;
}

}  // namespace kvsim::policy
