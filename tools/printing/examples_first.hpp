#pragma once
/// Formats help text so that it begins with examples (the app's footer), followed by the options.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace kvsim::tools
