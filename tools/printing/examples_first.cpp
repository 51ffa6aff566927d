#include "tools/printing/examples_first.hpp"

#include <utility>

namespace kvsim::tools {

std::string ExamplesFirst::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
  std::string text = app->get_footer();
  if (!text.empty()) text = text.substr(0, text.find_last_not_of('\n') + 1) + "\n\n";
  text += make_description(app) + '\n' + make_usage(app, std::move(name)) + make_positionals(app);
  return text + make_groups(app, mode) + make_subcommands(app, mode);
}

}  // namespace kvsim::tools
