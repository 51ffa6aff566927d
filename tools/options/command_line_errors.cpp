#include "tools/options/command_line_errors.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <span>
#include <vector>

#include "sim/base/joined.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/suggest.hpp"
#include "tools/printing/help_text.hpp"

namespace kvsim::tools {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string see_help(const CLI::App& app) {
  return "See " + full_name(app) + " --help";
}

/// Words behind a command that they could follow, each after a space. `kvsim trace show run.h5` names a
/// command that is not there: that word is left out, if anything is left then.
std::string as_typed(std::span<const std::string> words) {
  std::error_code failed;
  const auto is_name = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  };
  if (words.size() > 1 && std::ranges::all_of(words[0], is_name) && words[0][0] != '-' &&
      !std::filesystem::exists(words[0], failed))
    words = words.subspan(1);
  std::string out;
  for (const std::string& word : words) out += ' ' + shell_word(word);
  return out;
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == name) return command;
  return nullptr;
}

/// The first command of `app` that `holds`; null if there is none.
template <class Holds>
const CLI::App* first_command(const CLI::App& app, Holds holds) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (holds(*command)) return command;
  return nullptr;
}

std::string unknown_option(const CLI::App& app, const std::string& text,
                           const std::vector<std::string>& left) {
  const std::string name = text.substr(0, text.find('='));
  const std::string message = "unknown option " + name + " of " + full_name(app) + "\n  ";
  // --calibrate, which is a command.
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  for (const CLI::App* place : {&app, app.get_parent()})
    if (const CLI::App* command = place == nullptr ? nullptr : command_named(*place, bare))
      return message + "There is a command " + full_name(*command) + ". See " + full_name(*command) +
             " --help";
  // An option of a command that was not named.
  const CLI::App* const below = first_command(
      app, [&](const CLI::App& command) { return command.get_option_no_throw(name) != nullptr; });
  if (below != nullptr) return message + "Say which command: " + full_name(*below) + as_typed(left);
  // One letter is near to every other.
  const std::string near = name.size() > 2 ? suggestion(name, option_names(app)) + ' ' : std::string();
  return message + near + see_help(app);
}

std::string unknown_command(const CLI::App& app, const std::string& name,
                            const std::vector<std::string>& left) {
  const std::string message = "unknown command '" + name + "' of " + full_name(app) + "\n  ";
  // "kvsim list" for "kvsim policy list", "kvsim trace run.h5" for "kvsim trace info run.h5".
  const CLI::App* const above =
      first_command(app, [&](const CLI::App& command) { return command_named(command, name) != nullptr; });
  if (above != nullptr) return message + "There is " + full_name(*command_named(*above, name)) + '.';
  const bool near = !nearest(name, command_names(app)).empty();
  const CLI::App* const reads = first_command(app, [](const CLI::App& command) {
    const auto wants = [](const CLI::Option* option) {
      return option->get_positional() && option->get_required();
    };
    return !command.get_options(wants).empty();
  });
  if (!near && app.get_parent() != nullptr && reads != nullptr)
    return message + "Say what to do: " + joined(command_names(app)) + ", such as " + full_name(*reads) +
           as_typed(left) + ". " + see_help(app);
  return message + suggestion(name, command_names(app)) + ' ' + see_help(app);
}

/// A file without the option that reads files of its kind.
std::string unexpected_argument(const CLI::App& app, const std::string& text) {
  const std::pair<const char*, const char*> options[] = {
      {".h5", "--trace"}, {".jsonl", "--workload"}, {".txt", "--prompt"}};
  std::string hint = see_help(app);
  for (const auto& [ending, option] : options)
    if (text.ends_with(ending) && app.get_option_no_throw(option) != nullptr)
      hint = std::string("Did you mean ") + option + ' ' + shell_word(text) + "? " + hint;
  return "unexpected argument '" + text + "' of " + full_name(app) + "\n  " + hint;
}

std::string missing_command(const CLI::App& app) {
  std::string names;
  for (const std::string& name : command_names(app)) names += (names.empty() ? "" : ", ") + name;
  return full_name(app) + " needs a command: " + names + "\n  " + see_help(app);
}

/// Missing options are told only when nothing misspelt could be what is missing.
const std::string* first_unknown_option(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments)
    if (argument.size() > 1 && argument.front() == '-') return &argument;
  return nullptr;
}

/// What CLI11 says, in our words.
std::string in_our_words(const std::string& text) {
  static const std::pair<std::regex, const char*> kWords[] = {
      {std::regex("^(.*): \\d+ required (\\S+) missing$"), "$1 needs a value: $2"},
      {std::regex("^(.*): At Most 1 required but received (\\d+)$"), "$1 is given $2 times; say it once"},
      {std::regex("^(\\S+) excludes (\\S+)$"), "$1 and $2 exclude each other"}};
  for (const auto& [theirs, ours] : kWords)
    if (std::regex_match(text, theirs)) return std::regex_replace(text, theirs, ours);
  return text;
}

}  // namespace

std::string explain(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = &root;
  while (true) {
    const std::vector<std::string> left = app->remaining();
    const bool has_commands = !command_names(*app).empty();
    const std::vector<CLI::App*> chosen = app->get_subcommands();
    // Options behind a misspelt command are those of the command that is meant.
    if (chosen.empty() && has_commands && !left.empty() && !left[0].starts_with('-'))
      return unknown_command(*app, left[0], left);
    if (const std::string* option = first_unknown_option(left)) return unknown_option(*app, *option, left);
    if (chosen.empty() && app->get_require_subcommand_min() > 0) return missing_command(*app);
    if (chosen.empty() && !left.empty()) return unexpected_argument(*app, left[0]);
    if (chosen.empty()) return in_our_words(error.what()) + "\n  " + see_help(*app);
    app = chosen.back();
  }
}

}  // namespace kvsim::tools
