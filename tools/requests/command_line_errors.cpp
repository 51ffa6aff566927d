#include "tools/requests/command_line_errors.hpp"

#include <vector>

#include "sim/base/suggest.hpp"

namespace kvsim::tools {
namespace {

/// "kvsim trace info": how a person calls `app`.
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + ' ' + app.get_name();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::string see_help(const CLI::App& app) {
  return "See " + full_name(app) + " --help";
}

std::string unknown_option(const CLI::App& app, const std::string& text) {
  const std::string name = text.substr(0, text.find('='));
  return "unknown option " + name + " of " + full_name(app) + "\n  " + suggestion(name, option_names(app)) +
         ' ' + see_help(app);
}

std::string unknown_command(const CLI::App& app, const std::string& name) {
  return "unknown command '" + name + "' of " + full_name(app) + "\n  " +
         suggestion(name, command_names(app)) + ' ' + see_help(app);
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

}  // namespace

std::string explain(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = &root;
  while (true) {
    const std::vector<std::string> left = app->remaining();
    if (const std::string* option = first_unknown_option(left)) return unknown_option(*app, *option);
    const bool has_commands = !command_names(*app).empty();
    const std::vector<CLI::App*> chosen = app->get_subcommands();
    if (chosen.empty() && has_commands && !left.empty()) return unknown_command(*app, left[0]);
    if (chosen.empty() && app->get_require_subcommand_min() > 0) return missing_command(*app);
    if (chosen.empty() && !left.empty()) {
      return "unexpected argument '" + left[0] + "' of " + full_name(*app) + "\n  " + see_help(*app);
    }
    if (chosen.empty()) return std::string(error.what()) + "\n  " + see_help(*app);
    app = chosen.back();
  }
}

void require_names_of_outputs(CLI::App& app) {
  for (const char* name : {"--output", "--decisions"}) {
    CLI::Option* const option = app.get_option_no_throw(name);
    if (option == nullptr) continue;
    option->check(CLI::Validator(
        [](std::string& text) { return std::string(text.empty() ? "is empty; name a file" : ""); }, ""));
  }
  for (CLI::App* const command : app.get_subcommands({})) require_names_of_outputs(*command);
}

}  // namespace kvsim::tools
