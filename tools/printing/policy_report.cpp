#include "tools/printing/policy_report.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <iomanip>
#include <ostream>

#include "analysis/choice/engine_recipes.hpp"
#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/suggest.hpp"
#include "tools/printing/policy_costs.hpp"

namespace kvsim::tools {
namespace {

using policy::Kind;
using policy::PolicySpec;
using policy::PresetSpec;
using policy::Registry;

constexpr std::size_t kWidth = 100;

std::string kind_name(const PolicySpec& spec) {
  return spec.is_oracle() ? "oracle" : std::string(policy::kind_name(spec.kind()));
}

/// Whether the preset is a variant, such as "h2o.factory": h2o as another implementation runs it.
bool is_variant(const PresetSpec& preset) {
  return preset.name.find('.') != std::string::npos;
}

std::vector<std::string> needs(const PolicySpec& spec) {
  std::vector<std::string> out;
  if (spec.needs.prompt_rows == policy::RowNeed::window) out.push_back("last prompt rows");
  if (spec.needs.prompt_rows == policy::RowNeed::all) out.push_back("all prompt rows");
  if (spec.needs.decode_rows) out.push_back("decode rows");
  if (spec.needs.keys) out.push_back("keys");
  if (spec.needs.values) out.push_back("values");
  if (spec.needs.queries) out.push_back("all queries");
  if (spec.needs.classes) out.push_back("token classes");
  if (spec.needs.output_weights) out.push_back("output weights");
  if (spec.uses_scores()) out.push_back("the eviction's scores");
  if (spec.is_oracle()) out.push_back("the future");
  if (spec.needs.surprises) out.push_back("the prompt's log probabilities");
  if (!complete(spec)) out.push_back("a file");
  return out;
}

/// The default as text. A parameter without a default names a file.
std::string shown_default(const ParamSpec& param) {
  return param.fallback.empty() ? "FILE.h5" : param.fallback;
}

/// "window=32,pool=avg:5": every parameter at its default.
std::string default_arguments(const PolicySpec& spec) {
  std::vector<std::string> out;
  for (const ParamSpec& param : spec.params) out.push_back(param.name + "=" + shown_default(param));
  return joined(out, ",");
}

/// A composition that uses `spec` with `arguments`.
std::string sample_composition(const PolicySpec& spec, const std::string& arguments) {
  const std::string call = arguments.empty() ? spec.name : spec.name + "(" + arguments + ")";
  if (spec.kind() == Kind::eviction || spec.kind() == Kind::replacement) return call;
  if (spec.kind() == Kind::allocation) return "snapkv+" + call;
  return "full+" + call;  // some of them need what all layers and heads hold
}

// ---- the page of one policy

void write_section(std::ostream& out, const std::string& title, const std::string& text) {
  if (!text.empty()) out << '\n' << title << '\n' << wrapped_text(text, kWidth, 2);
}

void write_departures(std::ostream& out, const std::vector<policy::Departure>& departures) {
  if (!departures.empty()) out << "\nElsewhere and here\n";
  for (const policy::Departure& departure : departures)
    out << wrapped_text(departure.theirs, kWidth, 2) << wrapped_text("here: " + departure.ours, kWidth, 6);
}

void write_engines(std::ostream& out, const policy::Composition& composition) {
  const std::vector<analysis::EngineRecipe> recipes = analysis::engine_recipes(composition.params);
  if (recipes.empty()) return;
  const bool shares = std::ranges::any_of(
      recipes, [](const auto& recipe) { return recipe.words.find("share") != std::string::npos; });
  out << "\nIn engines" << (shares ? ", where share is the part of the tokens that stays" : "") << '\n';
  for (const analysis::EngineRecipe& recipe : recipes) {
    out << "  " << recipe.engine << ": " << recipe.words << '\n';
    if (!recipe.apart.empty()) out << wrapped_text("there: " + recipe.apart, kWidth, 6);
  }
}

void write_params(std::ostream& out, const PolicySpec& spec) {
  out << "\nParameters\n" << (spec.params.empty() ? "  none\n" : "");
  for (const ParamSpec& param : spec.params) {
    const std::string unit = param.unit.empty() ? "" : ", " + param.unit;
    out << "  " << param.name << '=' << param.fallback << "  (" << legal_values(param) << unit << ")\n";
    out << wrapped_text(param.help, kWidth, 6);
  }
}

void write_examples(std::ostream& out, const std::vector<std::string>& compositions,
                    bool replacements = false) {
  out << "\nExamples\n";
  for (const std::string& composition : compositions)
    out << (replacements ? "  kvsim requests replay requests.jsonl"
                         : "  kvsim replay run.h5 --budget 10%,25%,50%")
        << " --policy " << shell_quoted(composition) << '\n';
}

/// What an eviction with its defaults may hold beside its budget; "-" if it has no budget or needs a file.
std::string holding(const PolicySpec& spec, const Registry& registry) {
  if (!complete(spec)) return "-";
  const auto found = parse_composition(spec.name, registry).eviction.holding();
  return found ? std::string(policy::holding_name(*found)) : "-";
}

std::string holding_text(policy::Holding holding) {
  switch (holding) {
    case policy::Holding::managed:
      return "managed (never more than the budget)";
    case policy::Holding::append_only:
      return "append_only (every generated token stays beside the budget)";
    case policy::Holding::overshoot:
      return "overshoot (a query attends more than the budget before tokens leave)";
  }
  bug("unknown holding");
}

/// The behaviour with defaults: unit, least budget and what is held beside the budget.
std::string default_behaviour(const PolicySpec& spec, const Registry& registry) {
  if (spec.own_budget()) return "no budget applies";
  if (!complete(spec)) return "does not run without a file";
  const policy::Composition composition = parse_composition(spec.name, registry);
  const std::size_t floor = composition.floor();
  return std::string(composition.layer_unit() ? "one set of positions per layer"
                                              : "one set of positions per KV head") +
         ", least budget " + std::to_string(floor) + (floor == 1 ? " token" : " tokens") + ", " +
         holding_text(composition.eviction.holding().value());
}

/// Writes the presets named after the policy.
void write_variants(std::ostream& out, const PolicySpec& spec, const Registry& registry) {
  bool first = true;
  for (const PresetSpec& preset : registry.presets()) {
    if (spec.kind() != Kind::eviction || !preset.name.starts_with(spec.name + ".")) continue;
    if (first) out << "\nVariants\n";
    first = false;
    out << "  " << preset.name << " = " << preset.expansion << '\n'
        << wrapped_text(preset.summary, kWidth, 6);
  }
}

void write_costs(std::ostream& out, const PolicySpec& spec, const Registry& registry) {
  const std::vector<std::string> sentences = cost_sentences(spec, registry);
  if (!sentences.empty()) out << "\nCosts\n";
  for (const std::string& sentence : sentences) out << wrapped_text(sentence, kWidth, 2);
}

void write_policy(std::ostream& out, const PolicySpec& spec, const Registry& registry) {
  out << spec.name << " (" << kind_name(spec) << ')';
  if (!spec.aliases.empty()) out << ", also " << joined(spec.aliases, ", ");
  out << '\n' << wrapped_text(spec.summary, kWidth, 2);
  write_section(out, "Rule", spec.details);
  write_departures(out, spec.departures);
  write_section(out, "Paper", spec.paper);
  write_params(out, spec);
  if (spec.kind() != Kind::replacement) {
    const std::vector<std::string> needed = needs(spec);
    write_section(out, "Needs", needed.empty() ? "positions only" : joined(needed, ", "));
  }
  if (spec.kind() == Kind::eviction)
    write_section(out, "With its defaults", default_behaviour(spec, registry));
  write_costs(out, spec, registry);
  if (complete(spec) && spec.kind() != Kind::replacement)
    write_engines(out, parse_composition(sample_composition(spec, ""), registry));
  std::vector<std::string> examples;
  if (complete(spec)) examples.push_back(sample_composition(spec, ""));
  if (!spec.params.empty()) examples.push_back(sample_composition(spec, default_arguments(spec)));
  write_examples(out, examples, spec.kind() == Kind::replacement);
  write_variants(out, spec, registry);
}

std::vector<const PolicySpec*> parts_of(const policy::Composition& composition) {
  std::vector<const PolicySpec*> out{composition.eviction.spec, composition.allocation.spec};
  if (composition.representation) out.push_back(composition.representation->spec);
  if (composition.selection) out.push_back(composition.selection->spec);
  return out;
}

/// Those of all parts.
std::vector<policy::Departure> departures_of(const policy::Composition& composition) {
  std::vector<policy::Departure> out;
  for (const PolicySpec* part : parts_of(composition))
    out.insert(out.end(), part->departures.begin(), part->departures.end());
  return out;
}

void write_composition(std::ostream& out, std::string_view typed, const Registry& registry) {
  const policy::Composition composition = parse_composition(typed, registry);
  out << composition.name << " (composition)\n";
  write_section(out, "In full", composition.params);
  out << "\nParts\n";
  for (const PolicySpec* part : parts_of(composition))
    out << wrapped_text(part->name + " (" + kind_name(*part) + "): " + part->summary, kWidth, 2);
  write_departures(out, departures_of(composition));
  write_engines(out, composition);
  write_examples(out, {std::string(typed)});
}

void write_preset(std::ostream& out, const PresetSpec& preset, const Registry& registry) {
  out << preset.name << " (preset)\n" << wrapped_text(preset.summary, kWidth, 2);
  write_section(out, "Stands for", preset.expansion);
  const policy::Composition composition = parse_composition(preset.name, registry);
  write_section(out, "In full", composition.params);
  write_departures(out, departures_of(composition));
  write_section(out, "Paper", preset.paper);
  write_engines(out, composition);
  write_examples(out, {preset.name});
}

// ---- the list

void write_table(std::ostream& out, const Registry& registry) {
  std::size_t longest = 14;
  for (const PolicySpec& spec : registry.policies()) longest = std::max(longest, spec.name.size());
  for (const PresetSpec& preset : registry.presets()) longest = std::max(longest, preset.name.size());
  const auto line = [&](const std::string& name, const std::string& text) {
    out << "  " << std::left << std::setw(static_cast<int>(longest) + 2) << name << text << '\n';
  };
  const auto kept = [&](const PolicySpec& spec) {
    std::string text = spec.kind() == Kind::eviction ? holding(spec, registry) : "";
    if (!text.empty()) text.resize(13, ' ');
    return text;
  };
  const std::pair<const char*, const char*> sections[] = {
      {"eviction",
       "evictions, what they hold beside the budget (managed: nothing; append_only: every generated token;\n"
       "overshoot: what leaves after the query), and what they do\n"},
      {"oracle", "\noracles: evictions that know the future, bounds for the others\n"},
      {"allocation", "\nallocations, after a '+'\n"},
      {"representation", "\nrepresentations, after a '+': how what is kept is stored\n"},
      {"selection", "\nselections, after a '+': what a query reads of what is kept\n"},
      {"replacement", "\nreplacements: which blocks a prefix cache of many requests gives up\n"}};
  for (const auto& [kind, title] : sections) {
    const auto shown = [wanted = std::string_view(kind)](const PolicySpec& spec) {
      return wanted == kind_name(spec);
    };
    if (std::ranges::none_of(registry.policies(), shown)) continue;
    out << title;
    for (const PolicySpec& spec : registry.policies())
      if (shown(spec)) line(spec.name, kept(spec) + spec.summary);
  }
  for (const bool variant : {false, true}) {
    const auto shown = [&](const PresetSpec& preset) { return is_variant(preset) == variant; };
    if (std::ranges::none_of(registry.presets(), shown)) continue;
    out << (variant ? "\nvariants: a policy as one code runs it\n"
                    : "\nsystems: an eviction and an allocation\n");
    for (const PresetSpec& preset : registry.presets()) {
      if (!shown(preset)) continue;
      line(preset.name, preset.summary);
      line("", "= " + preset.expansion);
    }
  }
}

void write_md(std::ostream& out, const Registry& registry) {
  out << "| name | kind | what it does | parameters and defaults | holds | reads | paper |\n"
      << "| --- | --- | --- | --- | --- | --- | --- |\n";
  const auto code = [](const std::string& text) { return text.empty() ? text : "`" + text + "`"; };
  for (const PolicySpec& spec : registry.policies())
    out << "| " << code(spec.name) << " | " << kind_name(spec) << " | " << spec.summary << " | "
        << code(default_arguments(spec)) << " | "
        << (spec.kind() == Kind::eviction ? holding(spec, registry) : "") << " | "
        << joined(needs(spec), ", ") << " | " << spec.paper << " |\n";
  for (const PresetSpec& preset : registry.presets())
    out << "| " << code(preset.name) << " | preset | " << preset.summary << " | " << code(preset.expansion)
        << " |  |  | " << preset.paper << " |\n";
  out << "\n### Where papers and codes differ\n\n| policy | elsewhere | here |\n| --- | --- | --- |\n";
  for (const PolicySpec& spec : registry.policies())
    for (const policy::Departure& departure : spec.departures)
      out << "| " << code(spec.name) << " | " << departure.theirs << " | " << departure.ours << " |\n";
  out << "\n### What they cost\n\nBeside exact attention over what is held, with their defaults: "
      << cost_setting() << ". Not listed: oracles, what needs a file, and splits that cost nothing.\n\n"
      << cost_table(registry) << "\n### What representations cost\n\nOf the same layer. Reading is part of "
      << "attention; the bits per number are of its whole prompt, the work is of what the budget keeps.\n\n"
      << representation_cost_table(registry)
      << "\n### What selections read\n\nOf a layer behind the dense ones "
      << "while it holds the whole prompt; shares are of what its keys and values take. Where the query "
         "heads of "
      << "a KV head agree, they read less together.\n\n"
      << selection_cost_table(registry);
}

boost::json::array json_array(const std::vector<std::string>& items) {
  boost::json::array out;
  for (const std::string& item : items) out.emplace_back(item);
  return out;
}

boost::json::object json_param(const ParamSpec& param) {
  return {{"name", param.name},
          {"default", param.fallback},
          {"legal", legal_values(param)},
          {"unit", param.unit},
          {"help", param.help}};
}

boost::json::object json_policy(const PolicySpec& spec, const Registry& registry) {
  boost::json::array params;
  for (const ParamSpec& param : spec.params) params.push_back(json_param(param));
  boost::json::array departures;
  for (const policy::Departure& departure : spec.departures)
    departures.push_back({{"elsewhere", departure.theirs}, {"here", departure.ours}});
  return {{"name", spec.name},
          {"kind", kind_name(spec)},
          {"aliases", json_array(spec.aliases)},
          {"summary", spec.summary},
          {"rule", spec.details},
          {"paper", spec.paper},
          {"params", params},
          {"needs", json_array(needs(spec))},
          {"departures", departures},
          {"holding", spec.kind() == Kind::eviction ? holding(spec, registry) : ""},
          {"randomised", spec.randomised}};
}

boost::json::object json_preset(const PresetSpec& preset) {
  return {{"name", preset.name},
          {"kind", "preset"},
          {"expansion", preset.expansion},
          {"summary", preset.summary},
          {"paper", preset.paper}};
}

/// Writes a JSON array with one policy per line.
void write_json(std::ostream& out, const Registry& registry) {
  std::vector<std::string> lines;
  for (const PolicySpec& spec : registry.policies())
    lines.push_back(boost::json::serialize(json_policy(spec, registry)));
  for (const PresetSpec& preset : registry.presets())
    lines.push_back(boost::json::serialize(json_preset(preset)));
  out << "[\n" << joined(lines, ",\n") << "\n]\n";
}

}  // namespace

void write_policy_list(std::ostream& out, const Registry& registry, std::string_view format) {
  if (format == "table")
    write_table(out, registry);
  else if (format == "md")
    write_md(out, registry);
  else if (format == "json")
    write_json(out, registry);
  else
    usage_error("unknown format \"" + std::string(format) + "\"", "kvsim policy list",
                suggestion(format, {"table", "json", "md"}));
}

void write_policy_report(std::ostream& out, const Registry& registry, std::string_view typed) {
  if (typed.find_first_of("(+") != std::string_view::npos) return write_composition(out, typed, registry);
  std::vector<std::string> known = registry.names(Kind::eviction);
  const auto add = [&](const std::vector<std::string>& more) {
    known.insert(known.end(), more.begin(), more.end());
  };
  for (const Kind kind : policy::kPartKinds) add(registry.names(kind));
  add(registry.names(Kind::replacement));
  add(registry.preset_names());
  const std::string name = spelled(typed, known, policy::kNameEnding).value_or(std::string(typed));
  const PolicySpec* eviction = registry.find_policy(Kind::eviction, name);
  const PolicySpec* part = registry.find_part(name);
  const PolicySpec* replacement = registry.find_policy(Kind::replacement, name);
  const PresetSpec* preset = registry.find_preset(name);
  if (!eviction && !part && !replacement && !preset) {
    registry.refuse_absent(name, {});
    usage_error("unknown policy \"" + name + "\"", {}, suggestion(name, known));
  }
  if (preset) write_preset(out, *preset, registry);
  if (eviction) write_policy(out, *eviction, registry);
  if (part && (preset || eviction)) out << '\n';
  if (part) write_policy(out, *part, registry);
  if (replacement && (preset || eviction || part)) out << '\n';
  if (replacement) write_policy(out, *replacement, registry);
}

}  // namespace kvsim::tools
