// kvsim man: manual pages.
#include <cctype>
#include <ostream>

#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/version.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/command_line.hpp"

namespace kvsim::tools {
namespace {

/// Text as it is: no requests at the begin of a line, hyphens that can be copied.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '~') {
      out += "\\(ti";
    } else {
      out += c;
    }
  }
  return out;
}

std::string section(const std::string& title) {
  std::string upper = title;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return ".SH " + escaped(upper) + '\n';
}

/// Lines that stay as they are.
std::string verbatim(const std::string& text) {
  return ".nf\n" + escaped(text) + "\n.fi\n";
}

std::string entry(const DescribedOption& option) {
  std::string out = ".TP\n\\fB" + escaped(joined(option.names, ", ")) + "\\fR";
  if (!option.value.empty()) out += " \\fI" + escaped(option.value) + "\\fR";
  std::string help = option.help;
  if (option.required) help += help.empty() ? "Required." : " (required)";
  if (!option.fallback.empty()) help += " (default: " + option.fallback + ")";
  return out + '\n' + escaped(help.empty() ? std::string("See above.") : help) + '\n';
}

std::string synopsis(const DescribedCommand& command) {
  std::string out = "\\fB" + escaped(command.name) + "\\fR";
  if (!command.options.empty()) out += " [\\fIOPTIONS\\fR]";
  for (const DescribedOption& positional : command.positionals)
    out += " \\fI" + escaped(positional.names.front()) + "\\fR";
  if (!command.commands.empty()) out += " \\fICOMMAND\\fR";
  return out + '\n';
}

std::string options_text(const DescribedCommand& command) {
  std::vector<std::string> groups;
  for (const DescribedOption& option : command.options) add_once(groups, option.group);
  std::string out;
  for (const std::string& group : groups) {
    out += section(group);
    for (const DescribedOption& option : command.options)
      if (option.group == group) out += entry(option);
  }
  return out;
}

/// "kvsim-cost-fit" of "kvsim cost fit": a page's name, without its section.
std::string page_name(const std::string& command) {
  std::string name = command;
  std::ranges::replace(name, ' ', '-');
  return name;
}

/// The page of one command in roff, for section 1. `all`: among which those below it are.
std::string manual_page(const DescribedCommand& command, const std::vector<DescribedCommand>& all) {
  std::string name = page_name(command.name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string out = ".TH " + escaped(name) + " 1 \"\" \"kvsim " + kVersion + "\" \"kvsim\"\n" +
                    section("Name") + escaped(page_name(command.name)) + " \\- " + escaped(command.help) +
                    '\n' + section("Synopsis") + synopsis(command);
  const std::string& examples = command.examples;
  if (!examples.empty()) out += section("Examples") + verbatim(examples.substr(examples.find('\n') + 1));
  if (!command.positionals.empty()) {
    out += section("Arguments");
    for (const DescribedOption& positional : command.positionals) out += entry(positional);
  }
  out += options_text(command);
  std::vector<std::string> others;
  if (!command.commands.empty()) {
    out += section("Commands");
    for (const DescribedCommand& below : all) {
      if (below.parent != command.name) continue;
      out += ".TP\n\\fB" + escaped(below.last_name()) + "\\fR\n" + escaped(below.help) + '\n';
      others.push_back("\\fB" + escaped(page_name(below.name)) + "\\fR(1)");
    }
  }
  if (!command.rest.empty()) out += section("Notes") + verbatim(command.rest);
  if (!command.parent.empty())
    others.insert(others.begin(), "\\fB" + escaped(page_name(command.parent)) + "\\fR(1)");
  return out + section("See also") + joined(others, ",\n") + '\n';
}

struct ManOptions {
  std::vector<std::string> names;
  std::string folder;
  bool overwrite = false;
};

void write_all(Command root, const ManOptions& options) {
  make_folders(options.folder);
  const std::vector<DescribedCommand> all = described_commands(root);
  for (const DescribedCommand& command : all)
    ResultOutput(options.folder + '/' + page_name(command.name) + ".1", options.overwrite)
        .commit(manual_page(command, all));
}

}  // namespace

void add_man_command(Command app) {
  Command command = app.add_subcommand(
      "man", "Print the manual page of a command",
      "Examples:\n  kvsim man cost fit | man -l -\n  kvsim man --all ~/.local/share/man/man1\n");
  const auto options = std::make_shared<ManOptions>();
  command.add_option("COMMAND", options->names, "", "Command, and its subcommand (default: kvsim itself)");
  command.add_option("--all", options->folder, "DIR", "Write the pages of all commands into this folder");
  command.add_flag("--overwrite", options->overwrite, "Replace existing pages");
  command.callback([options, app] {
    if (!options->folder.empty()) return write_all(app, *options);
    const std::vector<DescribedCommand> shown = described_commands(named_command(app, options->names));
    front_end().results() << manual_page(shown.front(), shown);
  });
}

}  // namespace kvsim::tools
