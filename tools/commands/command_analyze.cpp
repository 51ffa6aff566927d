// kvsim analyze: what recorded runs show, without replaying a policy.
#include <memory>
#include <string>
#include <vector>

#include "analysis/kinds/kind.hpp"
#include "analysis/results/document.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/param_value.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/formatted_output.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kAnalyzeExamples = R"(Examples:
  kvsim analyze hash run.h5 --bits 8,16,32 --skip 1
  kvsim analyze heads a.h5 b.h5 -o heads.csv
)";

struct AnalyzeOptions : OutputOptions {
  std::vector<std::string> files;
  std::string sequence;
  std::vector<std::string> values;  ///< one per setting of the kind
  unsigned threads = 0;
  bool quiet = false;
};

/// Whole numbers are numbers in json too.
analysis::Value typed(const std::string& value) {
  if (const auto number = number_of<std::uint64_t>(value)) return *number;
  return value;
}

/// What to type, for help.
std::string type_name(const ParamSpec& param) {
  switch (param.type) {
    case ParamType::count:
      return "N";
    case ParamType::real:
      return "X";
    case ParamType::share:
      return joined({"SHARE", joined(param.choices, "|")}, param.choices.empty() ? "" : "|");
    case ParamType::choice:
      return joined(param.choices, "|");
    default:
      return is_list(param.type) ? "LIST" : param.form.empty() ? "TEXT" : param.form;
  }
}

/// Ranges that end are said behind the help.
std::string help_of(const ParamSpec& param) {
  const bool ends = param.max > param.min && param.max < kNoLimit;
  return param.help + (ends ? " (" + allowed_values(param) + ")" : "");
}

void run_kind(const analysis::Kind& kind, const AnalyzeOptions& options) {
  analysis::Settings settings(kind.settings);
  for (std::size_t i = 0; i < kind.settings.size(); ++i)
    settings.set(kind.settings[i].name, options.values[i], "--" + kind.settings[i].name);
  const analysis::Format format = chosen_format(options);
  FormattedOutput output(format, options.output, options.overwrite);

  analysis::Document document{.analysis = kind.name, .traces = {}, .records = {kind.columns, {}}};
  for (const ParamValue& value : settings.entries)
    document.settings.emplace_back(value.name, typed(value.text));
  document.notes = kind.notes;
  for (const std::string& file : options.files) {
    for (const ChosenSequence& chosen : chosen_sequences(file, options.sequence)) {
      document.traces.push_back({chosen.name, chosen.source->content_sha256(),
                                 chosen.sequence.prompt_length(), chosen.sequence.decode_length()});
      Progress progress;
      const std::shared_ptr<void> shown = front_end().follow(progress, chosen.name, options.quiet);
      for (std::vector<analysis::Value>& row : kind.measure(
               {chosen.name, chosen.sequence, settings, front_end().policies(), options.threads, progress}))
        document.records.rows.push_back(std::move(row));
      chosen.source->require_unchanged();
    }
  }
  if (kind.summarise != nullptr) document.records = kind.summarise(document.records, settings);
  output.commit(document);
}

void add_kind(Command analyze, const analysis::Kind& kind) {
  Command command = analyze.add_subcommand(kind.name, kind.summary);
  const auto options = std::make_shared<AnalyzeOptions>();
  options->values.resize(kind.settings.size());
  command.footer(std::string("Examples:\n  kvsim analyze ") + kind.name + " run.h5\n  kvsim analyze " +
                 kind.name + " a.h5 b.h5 -o " + kind.name + ".csv\n\nSource: " + kind.source + "\n");
  command.add_option("TRACE", options->files, "Traces; results come in this order").required();
  for (std::size_t i = 0; i < kind.settings.size(); ++i) {
    const ParamSpec& param = kind.settings[i];
    options->values[i] = param.fallback;
    command.add_option("--" + param.name, options->values[i], help_of(param))
        .type_name(type_name(param))
        .default_str(param.fallback);
  }
  command.add_option("--sequence", options->sequence, kSequenceHelp).type_name("N|all");
  add_output_options(command, *options);
  command.add_option("--threads", options->threads, "Never changes a result (default: all)")
      .check(between(1U, 4096U))
      .type_name("N");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options, &kind] { run_kind(kind, *options); });
}

}  // namespace

void add_analyze_command(Command app) {
  Command command = app.add_subcommand("analyze", "What recorded runs show, without replaying a policy");
  command.footer(kAnalyzeExamples);
  command.require_subcommand(1);
  for (const analysis::Kind& kind : analysis::kinds()) add_kind(command, kind);
}

}  // namespace kvsim::tools
