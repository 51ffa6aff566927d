#include "tools/printing/help_text.hpp"

#include <utility>

namespace kvsim::tools {
namespace {

std::string without_line_ends(const std::string& text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

Footer footer_of(const CLI::App& command) {
  const std::string text = command.get_footer();
  if (!text.starts_with("Examples:")) return {{}, without_line_ends(text)};
  const std::size_t end = text.find("\n\n");
  return {without_line_ends(text.substr(0, end)),
          end == std::string::npos ? std::string() : without_line_ends(text.substr(end + 2))};
}

std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
                                         : full_name(*command.get_parent()) + ' ' + command.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string HelpText::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
  const auto [examples, rest] = footer_of(*app);
  std::string text = make_description(app) + '\n' + make_usage(app, std::move(name));
  if (!examples.empty()) text += '\n' + examples + '\n';
  text += make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
  if (!rest.empty()) text += '\n' + rest + '\n';
  return text;
}

std::string HelpText::make_option_opts(const CLI::Option* option) const {
  std::string text = CLI::Formatter::make_option_opts(option);
  const std::string type = option->get_type_name();
  const std::size_t colon = type.find(':'), at = text.find(type);
  if (colon == std::string::npos || at == std::string::npos || type.find('{') != std::string::npos)
    return text;
  return text.replace(at, type.size(), type.substr(0, colon));
}

}  // namespace kvsim::tools
