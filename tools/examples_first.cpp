#include "tools/examples_first.hpp"

#include <utility>

namespace kvsim::tools {

std::string ExamplesFirst::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
  std::string text = make_footer(app);
  if (!text.empty()) text += '\n';
  text += make_description(app) + '\n' + make_usage(app, std::move(name)) + make_positionals(app);
  return text + make_groups(app, mode) + make_subcommands(app, mode);
}

}  // namespace kvsim::tools
