// kvsim calibrate: what a representation or a selection learns of some recorded runs, as a file that its
// file= names when it is used on others.
#include <ostream>

#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/suggest.hpp"
#include "sim/replay/calibrate.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kCalibrateExamples = R"(Examples:
  kvsim calibrate cskv a.h5 b.h5 c.h5 -o components.h5
  kvsim replay d.h5 --policy 'full+cskv(file=components.h5)' --budget 100%
  kvsim calibrate 'kvquant(bits=2)' a.h5 b.h5 -o levels.h5
  kvsim replay d.h5 --policy 'full+kvquant(bits=2,file=levels.h5)' --budget 100%
)";

struct CalibrateOptions {
  std::string codec, output, sequence;
  std::vector<std::string> files;
  bool quiet = false, overwrite = false;
};

std::vector<std::string> calibrated_names() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : front_end().policies().policies())
    if (spec.make_calibrator) out.push_back(spec.name);
  return out;
}

/// The part that is typed without file=, which is what is about to be made.
policy::Part codec_of(const std::string& typed) {
  const std::size_t open = typed.find('(');
  const std::string name = typed.substr(0, open);
  const policy::PolicySpec* spec = front_end().policies().find_part(name);
  if (spec == nullptr)
    usage_error("is no representation and no selection", name, suggestion(name, calibrated_names()));
  if (!spec->make_calibrator)
    usage_error("learns nothing of other runs", name, "These do: " + joined(calibrated_names()) + ".");
  std::string rest = open == std::string::npos ? ")" : typed.substr(open + 1);
  if (rest != ")") rest = "," + rest;
  const policy::Composition parsed =
      policy::parse_composition("full+" + name + "(file=-" + rest, front_end().policies());
  return parsed.representation ? *parsed.representation : *parsed.selection;
}

void run_calibrate(const CalibrateOptions& options) {
  const policy::Part codec = codec_of(options.codec);
  require_ending(options.output, analysis::Format::h5);
  refuse_output(options.output, options.overwrite);
  std::vector<ChosenSequence> chosen;
  for (const std::string& file : options.files) {
    for (ChosenSequence& sequence : chosen_sequences(file, options.sequence))
      chosen.push_back(std::move(sequence));
  }
  std::vector<sim::CalibrationRun> runs;
  for (const ChosenSequence& run : chosen) runs.push_back({run.name, &run.sequence});
  const sim::Calibration calibration = followed(options.output, options.quiet, [&](Progress& progress) {
    return sim::calibrate(codec, runs, progress);
  });
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
      "calibrate", "Measure on recorded runs what a representation or a selection needs on others",
      std::string(kCalibrateExamples) + "\nThese are calibrated: " + joined(calibrated_names()) +
          ".\nReplay and evaluate refuse to test a file on the runs that it was measured on.\n");
  const auto options = std::make_shared<CalibrateOptions>();
  command.add_required("CODEC", options->codec, "CODEC",
                       "A calibrated representation or selection, without file=");
  command.add_required("TRACE", options->files, "",
                       "Traces of one model, of other texts than will be tested");
  command.add_required("-o,--output", options->output, "FILE", "HDF5 file to write");
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  command.add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { run_calibrate(*options); });
}

}  // namespace kvsim::tools
