#include "tools/options/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <span>
#include <sstream>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/suggest.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/help_text.hpp"

namespace kvsim::tools {
namespace {

CLI::Validator validator(const Check& check) {
  return CLI::Validator(check.holds, check.shown);
}

Check check_of(const CLI::Validator& made) {
  return {[made](std::string& text) { return made(text); }, made.get_description()};
}

}  // namespace

Check one_of(std::initializer_list<std::string> words) {
  return check_of(CLI::IsMember(std::vector<std::string>(words)));
}

Check hidden(Check check) {
  check.shown.clear();
  return check;
}

template <class T>
Check between(T low, T high) {
  std::ostringstream range;
  range << low << " to " << high;
  return {[low, high, shown = range.str()](std::string& text) {
            const std::optional<T> value = number_of<T>(text);
            return value && *value >= low && *value <= high
                       ? std::string()
                       : in_quotes(text) + " is not a number from " + shown;
          },
          range.str()};
}
template Check between(unsigned, unsigned);
template Check between(std::uint64_t, std::uint64_t);
template Check between(double, double);

const Option& Option::group(const std::string& name) const {
  option_->group(name);
  return *this;
}
const Option& Option::required() const {
  option_->required()->default_str("");
  return *this;
}
const Option& Option::check(const Check& check) const {
  option_->check(validator(check));
  return *this;
}
const Option& Option::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}
const Option& Option::needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}
const Option& Option::needs(const std::string& name) const {
  option_->needs(name);
  return *this;
}
const Option& Option::excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}
const Option& Option::excludes(const std::string& name) const {
  option_->excludes(name);
  return *this;
}
const Option& Option::delimiter(char mark) const {
  option_->delimiter(mark);
  return *this;
}
const Option& Option::takes_all_words() const {
  option_->allow_extra_args();
  return *this;
}
bool Option::is_required() const {
  return option_->get_required();
}
bool Option::empty() const {
  return option_->empty();
}

Command Command::in_group(const std::string& name) const {
  Command out(*this);
  out.group_ = name;
  return out;
}

Command Command::add_subcommand(const std::string& name, const std::string& help,
                                const std::optional<std::string>& footer) const {
  CLI::App* const made = app_->add_subcommand(name, help);
  if (footer) made->footer(*footer);
  return Command(*made);
}

template <class T>
Option Command::add_option(const std::string& names, T& value, const std::string& type,
                           const std::string& help, const Check& check) const {
  constexpr bool kList = std::is_same_v<T, std::vector<std::string>>,
                 kWhole = std::is_integral_v<T> || std::is_same_v<T, std::optional<std::uint64_t>>;
  CLI::Option* const made = app_->add_option(names, value, help);
  if (!type.empty()) made->type_name(type);
  if (!group_.empty()) made->group(group_);
  if (kList && names.starts_with('-')) made->allow_extra_args(false);
  const bool told = help.find("(default") != std::string::npos;
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
    if (!told) made->capture_default_str();
  if constexpr (kList)
    if (!told && !value.empty()) made->default_str(joined(value, ","));
  if (check.holds || kWhole) made->transform(validator(check.holds ? check : whole_number()));
  return Option(*made);
}
using Text = const std::string&;
template Option Command::add_option(Text, std::string&, Text, Text, const Check&) const;
template Option Command::add_option(Text, std::vector<std::string>&, Text, Text, const Check&) const;
template Option Command::add_option(Text, double&, Text, Text, const Check&) const;
template Option Command::add_option(Text, float&, Text, Text, const Check&) const;
template Option Command::add_option(Text, int&, Text, Text, const Check&) const;
template Option Command::add_option(Text, unsigned&, Text, Text, const Check&) const;
template Option Command::add_option(Text, std::uint64_t&, Text, Text, const Check&) const;
template Option Command::add_option(Text, std::optional<std::string>&, Text, Text, const Check&) const;
template Option Command::add_option(Text, std::optional<double>&, Text, Text, const Check&) const;
template Option Command::add_option(Text, std::optional<std::uint64_t>&, Text, Text, const Check&) const;

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  CLI::Option* const made = app_->add_flag(names, value, help);
  if (!group_.empty()) made->group(group_);
  return Option(*made);
}
Option Command::option(const std::string& name) const {
  return Option(*app_->get_option(name));
}
bool Command::has_option(const std::string& name) const {
  return app_->get_option_no_throw(name) != nullptr;
}
void Command::callback(std::function<void()> run) const {
  app_->callback(std::move(run));
}
void Command::require_subcommand(int n) const {
  app_->require_subcommand(n);
}
void Command::allow_extras() const {
  app_->allow_extras();
}
std::vector<Command> Command::subcommands() const {
  std::vector<Command> out;
  for (CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; }))
    out.emplace_back(*command);
  return out;
}

std::string Command::name() const {
  return app_->get_name();
}
std::string Command::full_name() const {
  return tools::full_name(*app_);
}
std::string Command::help() const {
  // help() of an App would be that of the command that is running.
  return app_->get_formatter()->make_help(app_, full_name(), CLI::AppFormatMode::Normal);
}

Command named_command(Command root, const std::vector<std::string>& names) {
  Command found = root;
  for (const std::string& name : names) {
    const std::vector<Command> below = found.subcommands();
    const auto next = std::ranges::find(below, name, &Command::name);
    if (next == below.end())
      usage_error("unknown command " + in_quotes(name), found.full_name(),
                  suggestion(name, command_names(found.parser())));
    found = *next;
  }
  return found;
}

CommandLine::CommandLine(const std::string& name, const std::string& help, const std::string& footer,
                         std::string (*version)())
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->formatter(std::make_shared<HelpText>());
  app_->footer(footer);
  app_->set_version_flag("-V,--version", version, "Version, commit, compiler, libraries");
}

CommandLine::~CommandLine() = default;

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

/// What is wrong with a command line, with the nearest valid spelling. `error`: what root.parse() threw, not
/// being a call for help or version.
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

}  // namespace

std::string CommandLine::parse(std::span<const std::string> arguments) const {
  try {
    // CLI11 takes them from the end.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForVersion& asked) {
    return std::string(asked.what()) + '\n';
  } catch (const CLI::Success&) {
    return app_->help();
  } catch (const CLI::ParseError& error) {
    usage_error(explain(*app_, error));
  }
  return {};
}

}  // namespace kvsim::tools
