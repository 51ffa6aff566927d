#include "tools/options/output_options.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "analysis/results/text_table.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::tools {
namespace {

/// "csv" of costs.csv; empty: none, or the dot alone.
std::string ending_of(const std::string& path) {
  return std::filesystem::path(path).extension().string().erase(0, 1);
}

bool is_format(const std::string& ending) {
  const std::vector<std::string> known = analysis::format_names();
  return std::ranges::find(known, ending) != known.end();
}

/// What tables are written as elsewhere, each behind a space.
constexpr std::string_view kTablesElsewhere = " parquet feather arrow xlsx xls ods";

/// What a text may be called that is for people.
constexpr std::string_view kTexts = " txt text log out";

bool is_among(const std::string& ending, std::string_view endings) {
  return (std::string(endings) + ' ').find(' ' + ending + ' ') != std::string::npos;
}

}  // namespace

void add_table_options(Command command) {
  analysis::TableLook& look = analysis::table_look();
  const Command results = command.in_group("Results");
  results.add_flag("--wide", look.wide,
                   "All columns of a table; else those that fit a terminal, or COLUMNS where that is set");
  results
      .add_option("--columns", look.columns, "LIST",
                  "Only these columns of a table, by their headings: peak_loss,r")
      .delimiter(',');
}

void add_output_options(Command command, OutputOptions& options) {
  command.add_option("--format", options.format, "table|csv|json|jsonl|md|h5",
                     "Written as (default: as FILE ends, else a table)");
  command.add_option("-o,--output", options.output, "FILE",
                     "Results go to this file instead of standard output: .csv, .json, .jsonl, .md, .h5");
  command.add_flag("--overwrite", options.overwrite, "Replace an existing output file");
  add_table_options(command);
}

analysis::Format chosen_format(const OutputOptions& options) {
  const std::string ending = ending_of(options.output);
  if (is_among(ending, kTablesElsewhere))
    usage_error("this command writes no " + ending, "-o " + options.output,
                "The Python package does: kvsim.replay(...).to_parquet(PATH), and to_pandas(). Here "
                "the name may end with .csv, .json, .jsonl, .md or .h5.");
  if (options.format.empty() && !ending.empty() && !is_format(ending) && !is_among(ending, kTexts))
    usage_error("has no ending of a format", "-o " + options.output,
                suggestion(ending, analysis::format_names()) + " Or say --format.");
  if (options.format.empty()) return analysis::parse_format(is_format(ending) ? ending : "table");
  const analysis::Format format = analysis::parse_format(options.format);
  if (is_format(ending) && options.format != ending)
    usage_error("contradicts --format " + options.format, "-o " + options.output,
                "Without --format the results are " + ending + ", as the name says.");
  return format;
}

void require_ending(const std::string& path, analysis::Format format) {
  const std::string ending = ending_of(path);
  if (is_among(ending, kTablesElsewhere) || (is_format(ending) && analysis::parse_format(ending) != format))
    usage_error("this command writes no " + ending, "-o " + path, "Name it so that it ends otherwise.");
}

}  // namespace kvsim::tools
