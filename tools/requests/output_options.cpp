#include "tools/requests/output_options.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "analysis/results/format_names.hpp"
#include "sim/base/error.hpp"

namespace kvsim::tools {
namespace {

/// "csv" of costs.csv, if it is a format.
std::optional<std::string> ending_of(const std::string& path) {
  const std::string end = std::filesystem::path(path).extension().string();
  const std::vector<std::string> known = analysis::format_names();
  if (end.size() < 2 || std::find(known.begin(), known.end(), end.substr(1)) == known.end())
    return std::nullopt;
  return end.substr(1);
}

}  // namespace

void add_output_options(CLI::App& command, OutputOptions& options) {
  const auto add = [&](CLI::Option* option) { option->group("Results"); };
  add(command.add_option("--format", options.format, "Written as (default: as FILE ends, else a table)")
          ->type_name("table|csv|json|jsonl|md|h5"));
  add(command
          .add_option("-o,--output", options.output,
                      "Results go to this file instead of standard output: .csv, .json, .jsonl, .md, .h5")
          ->type_name("FILE"));
  add(command.add_flag("--overwrite", options.overwrite, "Replace an existing output file"));
}

analysis::Format chosen_format(const OutputOptions& options) {
  const std::optional<std::string> ending = ending_of(options.output);
  if (options.format.empty()) return analysis::parse_format(ending.value_or("table"));
  const analysis::Format format = analysis::parse_format(options.format);
  if (ending && options.format != *ending)
    usage_error("contradicts --format " + options.format, "-o " + options.output,
                "Without --format the results are " + *ending + ", as the name says.");
  return format;
}

void require_ending(const std::string& path, analysis::Format format) {
  const std::optional<std::string> ending = ending_of(path);
  if (ending && analysis::parse_format(*ending) != format)
    usage_error("this command writes no " + *ending, "-o " + path, "Name it so that it ends otherwise.");
}

}  // namespace kvsim::tools
