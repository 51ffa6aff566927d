#include "tools/options/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <sstream>

#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"
#include "tools/options/command_line_errors.hpp"
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
