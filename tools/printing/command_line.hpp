#pragma once
/// The command line as data, taken from the description that CLI11 parses by: what completion and manual
/// pages are generated from.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvsim::tools {

/// What can stand for a value, to be completed.
struct Completed {
  enum class Kind { nothing, words, policies, models, machines, files, traces, studies, folders };
  Kind kind = Kind::nothing;
  std::vector<std::string> words{};  ///< of Kind::words
};

struct DescribedOption {
  std::vector<std::string> names{};  ///< "-o", "--output"; of a positional its one name, such as TRACE
  std::string value{};               ///< "FILE"; empty: a flag, or a positional
  std::string fallback{};            ///< empty: there is none, or the help says it
  std::string help{};                ///< one line
  std::string group{};
  bool positional = false, required = false;
  Completed completed{};
};

struct DescribedCommand {
  const CLI::App* app = nullptr;
  std::string name{};  ///< "kvsim cost fit"
  std::string help{};  ///< one line
  std::vector<DescribedOption> options{}, positionals{};
  std::vector<std::string> commands{};  ///< the names of those below, without its own
};

/// `root` and every command below, each before its own.
std::vector<DescribedCommand> described_commands(const CLI::App& root);

/// Names that options take: all policies and presets, allocations, models, machines.
std::vector<std::string> policy_words();
std::vector<std::string> allocation_words();
std::vector<std::string> model_words();
std::vector<std::string> machine_words();

}  // namespace kvsim::tools
