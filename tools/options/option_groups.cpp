#include "tools/options/option_groups.hpp"

namespace kvsim::tools {

void group_options(Command command, const std::string& group, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (command.has_option(name) && !command.option(name).is_required()) command.option(name).group(group);
}

void group_shared_options(Command root) {
  group_options(
      root, "Results",
      {"--format", "--output", "--overwrite", "--decisions", "--plot", "--per", "--losses", "--bounds"});
  group_options(root, "Run", {"--threads", "--seed", "--memory-limit", "--quiet"});
  for (const Command& command : root.subcommands()) group_shared_options(command);
}

void require_names_of_outputs(Command root) {
  for (const char* name : {"--output", "--decisions", "--second-pass"})
    if (root.has_option(name))
      root.option(name).check(
          {[](std::string& text) { return std::string(text.empty() ? "is empty; name a file" : ""); }});
  for (const Command& command : root.subcommands()) require_names_of_outputs(command);
}

}  // namespace kvsim::tools
