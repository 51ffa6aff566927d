#pragma once
/// What --help prints, in lines of 80 characters: what the command does, how it is called, examples, options
/// by purpose, and whatever else its footer says.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvsim::tools {

/// A command's footer in two: the examples that it begins with (up to an empty line), and the rest. No line
/// end at either's end.
struct Footer {
  std::string examples{}, rest{};
};
Footer footer_of(const CLI::App& command);

/// "kvsim cost fit": how a person calls `command`.
std::string full_name(const CLI::App& command);

/// Names of the commands that `app` has.
std::vector<std::string> command_names(const CLI::App& app);

class HelpText : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  /// Without what CLI11 says of checks behind a type's name: N, not N:UINT in [1 - 4096].
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace kvsim::tools
