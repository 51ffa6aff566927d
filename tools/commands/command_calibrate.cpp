// kvsim calibrate: what a policy learns of some recorded runs, as a file that its
// file= names when it is used on others.

#include "policies/api/composition.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "sim/replay/calibration_tables.hpp"
#include "sim/replay/kv_prediction.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kCalibrateExamples = R"(Examples:
  kvsim calibrate cskv a.h5 b.h5 c.h5 -o components.h5
  kvsim replay d.h5 --policy 'full+cskv(file=components.h5)' --budget 100%
  kvsim calibrate kv_prediction a.h5 b.h5 --small a-small.h5 b-small.h5 -o maps.h5
  kvsim trace predict maps.h5 d.h5 --small d-small.h5
)";

struct CalibrateOptions {
  std::string codec, output, sequence;
  std::vector<std::string> files, small;
  std::string layers;
  double ridge = 0;
  bool quiet = false, overwrite = false;
};

constexpr const char* kPrediction = "kv_prediction";

std::vector<std::string> calibrated_names() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : front_end().policies().policies())
    if (spec.make_calibrator) out.push_back(spec.name);
  out.emplace_back(kPrediction);
  return out;
}

/// The part that is typed without file=, which is what is about to be made.
policy::Part codec_of(const std::string& typed) {
  const std::size_t open = typed.find('(');
  const std::string name = typed.substr(0, open);
  const policy::Registry& policies = front_end().policies();
  const policy::PolicySpec* eviction = policies.find_policy(policy::Kind::eviction, name);
  const policy::PolicySpec* spec = eviction ? eviction : policies.find_part(name);
  if (spec == nullptr)
    usage_error("is no eviction, representation or selection", name, suggestion(name, calibrated_names()));
  if (!spec->make_calibrator)
    usage_error("learns nothing of other runs", name, "These do: " + joined(calibrated_names()) + ".");
  std::string rest = open == std::string::npos ? ")" : typed.substr(open + 1);
  if (rest != ")") rest = "," + rest;
  const policy::Composition parsed =
      policy::parse_composition((eviction ? "" : "full+") + name + "(file=-" + rest, policies);
  if (eviction) return parsed.eviction;
  return parsed.representation ? *parsed.representation : *parsed.selection;
}

/// The small model's layers, as typed or as the paper has them.
std::vector<std::size_t> layers_of(const std::string& typed, const trace::Model& large,
                                   const trace::Model& small) {
  if (typed.empty()) return sim::prediction_layers(large.n_layers, small.n_layers);
  std::vector<std::size_t> out;
  for (const std::string& layer : comma_list(typed)) {
    out.push_back(tokens_of(layer).value_or(small.n_layers));
    if (out.back() >= small.n_layers)
      usage_error("the small model has no layer " + layer, "--layers",
                  "It has 0 to " + std::to_string(small.n_layers - 1) + ".");
  }
  if (out.size() != large.n_layers)
    usage_error("names " + std::to_string(out.size()) + " layers, the large model has " +
                    std::to_string(large.n_layers),
                "--layers");
  return out;
}

sim::Calibration predicting(const CalibrateOptions& options, const std::vector<ChosenSequence>& large) {
  std::vector<ChosenSequence> small;
  for (const std::string& file : options.small)
    for (ChosenSequence& sequence : chosen_sequences(file, options.sequence))
      small.push_back(std::move(sequence));
  if (small.size() != large.size())
    usage_error("has " + std::to_string(small.size()) + " runs of the small model for " +
                    std::to_string(large.size()) + " of the large one",
                "--small", "Name one for each, in the same order.");
  std::vector<sim::PredictionRun> runs;
  for (std::size_t i = 0; i < large.size(); ++i)
    runs.push_back({large[i].name, small[i].name, &large[i].sequence, &small[i].sequence});
  const std::vector<std::size_t> from =
      layers_of(options.layers, large[0].sequence.model(), small[0].sequence.model());
  sim::Calibration out = followed(options.output, options.quiet, [&](Progress& progress) {
    return sim::fit_prediction(runs, from, options.ridge, progress);
  });
  for (const ChosenSequence& run : small) run.source->require_unchanged();
  return out;
}

void run_calibrate(const CalibrateOptions& options) {
  const bool predicts = options.codec == kPrediction;
  if (!predicts && (!options.small.empty() || !options.layers.empty() || options.ridge > 0))
    usage_error("are of maps from one model to another", "--small, --layers, --ridge",
                "Say kvsim calibrate kv_prediction.");
  const std::optional<policy::Part> codec = predicts ? std::nullopt : std::optional(codec_of(options.codec));
  require_ending(options.output, analysis::Format::h5);
  refuse_output(options.output, options.overwrite);
  std::vector<ChosenSequence> chosen;
  for (const std::string& file : options.files) {
    for (ChosenSequence& sequence : chosen_sequences(file, options.sequence))
      chosen.push_back(std::move(sequence));
  }
  std::vector<sim::CalibrationRun> runs;
  for (const ChosenSequence& run : chosen) runs.push_back({run.name, &run.sequence});
  const sim::Calibration calibration =
      predicts ? predicting(options, chosen)
               : followed(options.output, options.quiet,
                          [&](Progress& progress) { return sim::calibrate(*codec, runs, progress); });
  std::uint64_t tokens = 0;
  for (const ChosenSequence& run : chosen) {
    run.source->require_unchanged();
    tokens += run.sequence.length();
  }
  sim::write_calibration(options.output, calibration, options.overwrite);
  if (!options.quiet)
    front_end().announce(calibration.maker + ": measured on " + std::to_string(tokens) + " tokens of " +
                         std::to_string(runs.size()) + " runs\n");
}

}  // namespace

void add_calibrate_command(Command app) {
  Command command = app.add_subcommand(
      "calibrate", "Measure on recorded runs what a policy needs on others",
      std::string(kCalibrateExamples) + "\nThese are calibrated: " + joined(calibrated_names()) +
          ".\nReplay and evaluate refuse to test a file on the runs that it was measured on.\n");
  const auto options = std::make_shared<CalibrateOptions>();
  command.add_required("CODEC", options->codec, "CODEC", "A calibrated policy, without file=");
  command.add_required("TRACE", options->files, "",
                       "Traces of one model, of other texts than will be tested");
  command.add_required("-o,--output", options->output, "FILE", "HDF5 file to write");
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  command
      .add_option("--small", options->small, "TRACE",
                  "Of kv_prediction: the same prompts as a smaller model with the same tokenizer read them")
      .takes_all_words();
  command.add_option(
      "--layers", options->layers, "LIST",
      "Of kv_prediction: the small model's layer for each of the large one's (default: as the\n"
      "paper has them)");
  command.add_option("--ridge", options->ridge, "X",
                     "Of kv_prediction: added to the mean squares (default: 0, least squares)",
                     between(0.0, 1e6));
  command.add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { run_calibrate(*options); });
}

}  // namespace kvsim::tools
