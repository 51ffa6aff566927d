#pragma once
/// Help that begins with examples (an app's footer), then says what everything means.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace kvsim::tools
