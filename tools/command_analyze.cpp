// kvsim analyze: what recorded runs show, without any policy.
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/hash_report.hpp"
#include "analysis/tables.hpp"
#include "sim/base/error.hpp"
#include "sim/hash_correlation.hpp"
#include "tools/command.hpp"
#include "tools/progress_display.hpp"
#include "tools/result_output.hpp"
#include "tools/whole_number.hpp"
#include "traces/reader.hpp"
#include "traces/sequence.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim analyze hash run.h5
)";

constexpr const char* kHashExamples = R"(Examples:
  kvsim analyze hash run.h5
  kvsim analyze hash run.h5 --bits 8,16,32 --skip 1 --projections 3 --format csv -o hash.csv
)";

/// What every kind of analysis is asked for.
struct Common {
  std::vector<std::string> files;
  std::string format = "table", output;
  unsigned threads = 0;
  bool quiet = false, overwrite = false;
};

void add_common(CLI::App& command, Common& common) {
  command.add_option("FILE", common.files, "Traces; results come in this order")->required();
  command.add_option("--format", common.format, "table | csv | json | jsonl | md")->capture_default_str();
  command.add_option("-o,--output", common.output, "Results go to this file instead of standard output")
      ->type_name("FILE");
  command.add_option("--threads", common.threads, "Never changes a result (default: all)")
      ->check(CLI::Range(1U, 4096U))
      ->type_name("N");
  command.add_flag("--overwrite", common.overwrite, "Replace an existing output file");
  command.add_flag("--quiet", common.quiet, "No progress on standard error");
}

struct HashOptions {
  Common common;
  std::string bits = "8,16,24,32,64";
  sim::HashStudy study;
};

std::vector<std::size_t> parse_lengths(const std::string& text) {
  std::vector<std::size_t> out;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    const bool number =
        !item.empty() && item.size() <= 2 && item.find_first_not_of("0123456789") == std::string::npos;
    if (!number) usage_error("'" + item + "' is not a number of bits from 1 to 64", "--bits " + text);
    out.push_back(std::stoul(item));
  }
  return out;
}

void run_hash(const HashOptions& options) {
  const Common& common = options.common;
  const analysis::Format format = analysis::parse_format(common.format);
  sim::HashStudy study = options.study;
  study.bits = parse_lengths(options.bits);
  study.threads = common.threads;
  for (const std::string& file : common.files) refuse_to_overwrite_input(common.output, file);
  ResultOutput output(common.output, common.overwrite);
  std::vector<analysis::HashReport> reports;
  std::vector<analysis::Inputs::TraceId> traces;
  for (const std::string& file : common.files) {
    const std::unique_ptr<trace::Source> source = trace::open_trace(file);
    const trace::Sequence sequence(*source);
    traces.push_back({file, source->content_sha256(), sequence.prompt_length(), sequence.decode_length()});
    Progress progress;
    const ProgressDisplay display(progress, file, common.quiet);
    reports.push_back({file, sim::hash_correlation(sequence, study, progress)});
  }
  std::ostringstream text;
  analysis::write_hash_reports(text, format, reports, traces, study);
  output.commit(text.str());
}

void add_hash(CLI::App& analyze) {
  CLI::App* command = analyze.add_subcommand(
      "hash", "How well the Hamming distance of SimHash codes tells what a query attends, by length");
  command->footer(kHashExamples);
  const auto options = std::make_shared<HashOptions>();
  add_common(*command, options->common);
  command->add_option("--bits", options->bits, "Comma list of hash lengths, 1 to 64 bits")
      ->capture_default_str()
      ->type_name("LIST");
  command->add_option("--projections", options->study.projections, "Distances are averaged over so many")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--skip", options->study.skip, "First positions left out: 1 for a BOS token")
      ->check(whole_number())
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--seed", options->study.seed, "Of projections and noise")
      ->check(whole_number())
      ->capture_default_str()
      ->type_name("N");
  command->callback([options] { run_hash(*options); });
}

}  // namespace

void add_analyze_command(CLI::App& app) {
  CLI::App* analyze = app.add_subcommand("analyze", "Statistics of recorded runs that need no policy");
  analyze->footer(kExamples);
  analyze->require_subcommand(1);
  add_hash(*analyze);
}

}  // namespace kvsim::tools
