// kvsim man: manual pages.
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/named_command.hpp"
#include "tools/printing/command_line.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/manual_page.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

struct ManOptions {
  std::vector<std::string> names;
  std::string folder;
  bool overwrite = false;
};

void write_all(Command root, const ManOptions& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) input_error("cannot be made: " + failed.message(), options.folder);
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
