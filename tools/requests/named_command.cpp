#include "tools/requests/named_command.hpp"

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/suggest.hpp"
#include "tools/printing/help_text.hpp"

namespace kvsim::tools {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

const CLI::App& named_command(const CLI::App& root, const std::vector<std::string>& names) {
  const CLI::App* found = &root;
  for (const std::string& name : names) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : found->get_subcommands([](const CLI::App*) { return true; }))
      if (command->get_name() == name) next = command;
    if (next == nullptr)
      usage_error("unknown command " + kvsim::quoted(name), full_name(*found),
                  suggestion(name, command_names(*found)));
    found = next;
  }
  return *found;
}

}  // namespace kvsim::tools
