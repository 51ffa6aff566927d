#include "tools/printing/shell_values.hpp"

#include "sim/base/joined.hpp"
#include "sim/base/shell_word.hpp"

namespace kvsim::tools {

std::string value_name(const Completed& completed) {
  switch (completed.kind) {
    case Completed::Kind::words:
      return joined(completed.words, " ");
    case Completed::Kind::policies:
      return "@policies";
    case Completed::Kind::models:
      return "@models";
    case Completed::Kind::machines:
      return "@machines";
    case Completed::Kind::files:
      return "@files";
    case Completed::Kind::traces:
      return "@traces";
    case Completed::Kind::studies:
      return "@studies";
    case Completed::Kind::folders:
      return "@folders";
    case Completed::Kind::nothing:
      break;
  }
  return "@none";
}

std::string first_value(const DescribedCommand& command) {
  if (!command.commands.empty()) return joined(command.commands, " ");
  return command.positionals.empty() ? "@none" : value_name(command.positionals.front().completed);
}

std::string later_value(const DescribedCommand& command) {
  if (!command.commands.empty()) return joined(command.commands, " ");
  return command.positionals.empty() ? "@none" : value_name(command.positionals.back().completed);
}

std::map<std::string, std::vector<std::string>> options_by_value(
    const std::vector<DescribedCommand>& commands) {
  std::map<std::string, std::vector<std::string>> out;
  for (const DescribedCommand& command : commands)
    for (const DescribedOption& option : command.options)
      if (!option.value.empty())
        for (const std::string& name : option.names)
          out[value_name(option.completed)].push_back(command.name + ' ' + name);
  return out;
}

std::string patterns(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(shell_quoted(name));
  return joined(out, " | ");
}

}  // namespace kvsim::tools
