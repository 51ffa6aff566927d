#include "tools/printing/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "analysis/figures/figure_kind.hpp"
#include "sim/base/split.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/help_text.hpp"
#include "traces/workloads/workload.hpp"

namespace kvsim::tools {
namespace {

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '_';
  });
}

template <class Kinds>
std::vector<std::string> names_of(const Kinds& kinds) {
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.emplace_back(kind.name);
  return names;
}

/// "{all,layer}" of a check among words, or the lower-case alternatives of "N|all".
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t brace = type.find('{'), end = type.find('}');
  const bool set = brace != std::string::npos && end != std::string::npos;
  std::vector<std::string> words;
  if (!set && type.find('|') == std::string::npos) return words;
  for (const std::string_view word :
       split(set ? std::string_view(type).substr(brace + 1, end - brace - 1) : std::string_view(type),
             set ? ',' : '|'))
    if (is_word(word)) words.emplace_back(word);
  return words;
}

/// What `name`, of a value or a positional, stands for.
Completed completed_as(const std::string& name, const std::string& type) {
  using Kind = Completed::Kind;
  if (std::vector<std::string> words = choices_of(type); !words.empty()) return {Kind::words, words};
  if (name == "POLICY") return {Kind::policies};
  if (name == "MODEL") return {Kind::models};
  if (name == "MACHINE") return {Kind::machines};
  if (name == "TRACE") return {Kind::traces};
  if (name == "STUDY.json") return {Kind::studies};
  if (name == "DIR") return {Kind::folders};
  if (name == "KIND") return {Kind::words, names_of(workload::kinds())};
  if (name == "FIGURE") return {Kind::words, names_of(analysis::figure_kinds())};
  if (name.find("FILE") != std::string::npos || name == "RESULTS" || name == "A" || name == "B")
    return {Kind::files};
  return {};
}

DescribedOption described(const CLI::Option& option) {
  DescribedOption out;
  out.positional = option.get_positional();
  const bool flag = option.get_type_size() == 0;
  const std::string type = flag ? "" : option.get_type_name();
  out.value = out.positional ? "" : type.substr(0, type.find(':'));
  if (out.positional) {
    out.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  }
  out.fallback = option.get_default_str();
  out.help = one_line(option.get_description());
  out.group = option.get_group();
  out.required = option.get_required();
  if (!flag) out.completed = completed_as(out.positional ? out.names.front() : out.value, type);
  return out;
}

void describe(const CLI::App& app, std::vector<DescribedCommand>& out) {
  const Footer footer = footer_of(app);
  DescribedCommand command{full_name(app), app.get_parent() == nullptr ? "" : full_name(*app.get_parent()),
                           one_line(app.get_description()), footer.examples, footer.rest};
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    DescribedOption made = described(*option);
    (made.positional ? command.positionals : command.options).push_back(std::move(made));
  }
  command.commands = command_names(app);
  out.push_back(std::move(command));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    describe(*below, out);
}

std::vector<std::string> policies_of(bool allocations) {
  std::vector<std::string> names;
  for (const policy::PolicySpec& spec : front_end().policies().policies())
    if ((spec.kind() == policy::Kind::allocation) == allocations) names.push_back(spec.name);
  return names;
}

}  // namespace

std::vector<DescribedCommand> described_commands(Command root) {
  std::vector<DescribedCommand> out;
  describe(root.parser(), out);
  return out;
}

std::vector<std::string> policy_words() {
  std::vector<std::string> names = policies_of(false);
  for (const auto& preset : front_end().policies().presets()) names.push_back(preset.name);
  names.insert(names.end(), {"all", "oracles"});
  return names;
}

std::vector<std::string> allocation_words() {
  return policies_of(true);
}

std::vector<std::string> model_words() {
  return names_of(cost::known_models());
}

std::vector<std::string> machine_words() {
  return names_of(cost::known_machines());
}

}  // namespace kvsim::tools
