// kvsim analyze: what recorded runs show, without replaying a policy.

#include "analysis/kinds/kind.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/param_value.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"

namespace kvsim::tools {
namespace {

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
  FormattedOutput output(options);

  analysis::Document document{.analysis = kind.name, .traces = {}, .records = {kind.columns, {}}};
  for (const ParamValue& value : settings.entries)
    document.settings.emplace_back(value.name, typed(value.text));
  document.notes = kind.notes;
  for (const std::string& file : options.files) {
    for (const ChosenSequence& chosen : chosen_sequences(file, options.sequence)) {
      document.traces.push_back({chosen.name, chosen.source->content_sha256(),
                                 chosen.sequence.prompt_length(), chosen.sequence.decode_length()});
      for (std::vector<analysis::Value>& row : followed(chosen.name, options.quiet, [&](Progress& progress) {
             return kind.measure(
                 {chosen.name, chosen.sequence, settings, front_end().policies(), options.threads, progress});
           }))
        document.records.rows.push_back(std::move(row));
      chosen.source->require_unchanged();
    }
  }
  if (kind.summarise != nullptr) document.records = kind.summarise(document.records, settings);
  output.commit(document);
}

void add_kind(Command analyze, const analysis::Kind& kind) {
  const std::string name = kind.name;
  Command command =
      analyze.add_subcommand(name, kind.summary,
                             "Examples:\n  kvsim analyze " + name + " run.h5\n  kvsim analyze " + name +
                                 " a.h5 b.h5 -o " + name + ".csv\n\nSource: " + kind.source + "\n");
  const auto options = std::make_shared<AnalyzeOptions>();
  options->values.resize(kind.settings.size());
  command.add_required("TRACE", options->files, "", "Traces; results come in this order");
  for (std::size_t i = 0; i < kind.settings.size(); ++i) {
    const ParamSpec& param = kind.settings[i];
    options->values[i] = param.fallback;
    command.add_option("--" + param.name, options->values[i], type_name(param), help_of(param));
  }
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  add_output_options(command, *options);
  add_threads(command, options->threads, 4096);
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options, &kind] { run_kind(kind, *options); });
}

}  // namespace

void add_analyze_command(Command app) {
  Command command =
      app.add_subcommand("analyze", "What recorded runs show, without replaying a policy", R"(Examples:
  kvsim analyze hash run.h5 --bits 8,16,32 --skip 1
  kvsim analyze heads a.h5 b.h5 -o heads.csv
)");
  command.require_subcommand(1);
  for (const analysis::Kind& kind : analysis::kinds()) add_kind(command, kind);
}

}  // namespace kvsim::tools
