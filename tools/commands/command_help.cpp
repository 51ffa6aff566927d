// kvsim help: the same as --help.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tools/commands/command.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/help_text.hpp"
#include "tools/requests/named_command.hpp"

namespace kvsim::tools {

void add_help_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("help", "What a command does, and its options");
  command->footer("Examples:\n  kvsim help replay\n  kvsim help cost estimate\n");
  const auto names = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *names, "Command, and its subcommand (default: all of kvsim)");
  command->callback([names, &app] {
    const CLI::App& named = named_command(app, *names);
    // help() of an App would be that of the command that is running, this one.
    front_end().results() << named.get_formatter()->make_help(&named, full_name(named),
                                                              CLI::AppFormatMode::Normal);
  });
}

}  // namespace kvsim::tools
