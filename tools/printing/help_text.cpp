#include "tools/printing/help_text.hpp"

#include <utility>

#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"

namespace kvsim::tools {
namespace {

constexpr std::size_t kHelpWidth = 80;

/// A command in lines of kHelpWidth that a shell joins, broken between its words.
std::string broken_command(const std::string& command) {
  std::string out, line, word;
  char quote = 0;
  for (const char c : command + ' ') {
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '\'' || c == '"'))
      quote = c;
    if (c != ' ' || quote != 0 || word.find_first_not_of(' ') == std::string::npos) {
      word += c;
      continue;
    }
    if (!line.empty() && line.size() + 1 + word.size() + 2 > kHelpWidth) {
      out += line + " \\\n";
      line = "     ";
    }
    line += (line.empty() ? "" : " ") + std::exchange(word, "");
  }
  return out + line;
}

std::string without_line_ends(const std::string& text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// Where the text of a line begins: behind its spaces or, in a list, behind a name and two spaces or more.
std::size_t text_column(const std::string& line) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t name_end = line.find(' ', indent);
  if (name_end == std::string::npos || line.compare(name_end, 2, "  ") != 0) return indent;
  return std::min(line.find_first_not_of(' ', name_end), line.size());
}

/// Lines longer than kHelpWidth as several, indented to where their text begins.
std::string in_width(const std::string& text) {
  std::string out;
  for (const std::string_view piece : split(text, '\n')) {
    const std::string line(piece);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (characters(line) <= kHelpWidth)
      out += line;
    else if (indent > 0 && line.compare(indent, 5, "kvsim") == 0)
      out += broken_command(line);
    else {
      const std::size_t column = text_column(line);
      out += line.substr(0, column) +
             without_line_ends(wrapped_text(line.substr(column), kHelpWidth, column)).substr(column);
    }
    out += '\n';
  }
  return without_line_ends(out);
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
  std::string text =
      wrapped_text(app->get_description(), kHelpWidth) + '\n' + make_usage(app, std::move(name));
  if (!examples.empty()) text += '\n' + in_width(examples) + '\n';
  text += make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
  if (!rest.empty()) text += '\n' + in_width(rest) + '\n';
  return text;
}

std::string HelpText::make_option_opts(const CLI::Option* option) const {
  std::string text = CLI::Formatter::make_option_opts(option);
  if (option->get_positional() && text.starts_with(" TEXT"))
    return text.substr(5);  // its name says what it is
  const std::string type = option->get_type_name();
  const std::size_t colon = type.find(':'), at = text.find(type);
  if (colon == std::string::npos || at == std::string::npos || type.find('{') != std::string::npos)
    return text;
  return text.replace(at, type.size(), type.substr(0, colon));
}

std::string HelpText::make_option_desc(const CLI::Option* option) const {
  return joined(wrapped(CLI::Formatter::make_option_desc(option), kHelpWidth - get_column_width()), "\n");
}

std::string HelpText::make_subcommand(const CLI::App* command) const {
  std::stringstream out;
  CLI::detail::format_help(out, command->get_name(),
                           joined(wrapped(command->get_description(), kHelpWidth - get_column_width()), "\n"),
                           get_column_width());
  return out.str();
}

}  // namespace kvsim::tools
