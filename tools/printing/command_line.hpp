#pragma once
/// The command line as data, taken from the description that it is parsed by: what completion and manual
/// pages are generated from.
#include <string>
#include <vector>

#include "tools/options/command_tree.hpp"

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
  std::string name{};              ///< "kvsim cost fit"
  std::string parent{};            ///< "kvsim cost"; empty: it is the root
  std::string help{};              ///< one line
  std::string examples{}, rest{};  ///< of what --help prints
  std::vector<DescribedOption> options{}, positionals{};
  std::vector<std::string> commands{};  ///< the names of those below, without its own

  std::string last_name() const { return name.substr(parent.empty() ? 0 : parent.size() + 1); }
};

/// `root` and every command below, each before its own.
std::vector<DescribedCommand> described_commands(Command root);

/// Names that options take: all policies and presets, allocations, models, machines.
std::vector<std::string> policy_words();
std::vector<std::string> allocation_words();
std::vector<std::string> model_words();
std::vector<std::string> machine_words();

}  // namespace kvsim::tools
