// kvsim cost calibrate: a machine file from traces.
#include <unistd.h>

#include <filesystem>

#include "analysis/results/numbers.hpp"
#include "sim/cost/calibration.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::tools {
namespace {

struct CostCalibrateOptions {
  std::vector<std::string> traces{};
  std::string machine{};  ///< whose datasheet, links and memory are taken; empty: nothing is known of it
  std::string output{};   ///< the machine file; empty: none is written
  std::string format = "table";
  bool overwrite = false;
};

using analysis::Value;
using cost::Calibration;
using cost::Ceilings;

/// Processor and threads.
std::string recorded_on(const trace::Header& header) {
  const trace::Capture& capture = header.capture;
  std::string device = capture.device_kind == "cpu" ? capture.cpu_model : capture.device_name;
  if (device.empty()) device = "a machine that is not named";
  if (capture.threads > 0)
    device += ", " + std::to_string(capture.threads) + (capture.threads == 1 ? " thread" : " threads");
  return device;
}

struct Recorded {
  std::vector<cost::Recording> recordings{};
  std::vector<analysis::TraceId> traces{};
  std::string device{};
};

Recorded recorded(const std::vector<std::string>& paths) {
  Recorded out;
  for (const std::string& path : paths) {
    require_trace(path);
    const auto trace = trace::open_trace(path);
    const std::string device = recorded_on(trace->header());
    if (out.device.empty()) out.device = device;
    if (device != out.device)
      usage_error("was recorded on " + device + ", others on " + out.device, path,
                  "Ceilings are those of one machine: calibrate each on its own.");
    out.recordings.push_back(cost::recording_of(trace->header(), path));
    trace->require_unchanged();
    out.traces.push_back({path, trace->content_sha256(), 0, 0});
  }
  return out;
}

std::uint64_t memory_here() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

Value percent_of(const std::optional<double>& error) {
  return error ? Value(*error * 100) : Value();
}

/// "4.1 %"; "none" where there is no such pass.
std::string percent(const std::optional<double>& error) {
  return error ? analysis::rounded_text(*error * 100, 1) + " %" : "none";
}

std::string source_of(const Calibration& found, const std::string& device) {
  return "ceilings fitted by kvsim to " +
         std::to_string(found.fitted.prefill_passes + found.fitted.decode_passes) + " passes recorded on " +
         device + "; mean error of " +
         std::to_string(found.held_out.prefill_passes + found.held_out.decode_passes) +
         " held out: " + percent(found.held_out.prefill) + " prefill, " + percent(found.held_out.decode) +
         " decode";
}

analysis::Records records_of(const Calibration& found) {
  analysis::Records out{{{"quantity", "", "what was fitted, or how well"},
                         {"value", "", "of the quantity; null: there is no such pass"},
                         {"unit", "", "of the value"}},
                        {}};
  const auto add = [&](const std::string& quantity, const Value& value, const char* unit) {
    out.rows.push_back({quantity, value, std::string(unit)});
  };
  const cost::Machine& machine = found.machine;
  const Ceilings& ceilings = machine.ceilings;
  add("matrix products", ceilings.compute * machine.matrix_rate / 1e9, "GFLOP/s");
  add("weights and activations", ceilings.memory * machine.bandwidth / 1e9, "GB/s");
  add("prefill attention", ceilings.attention_compute * machine.matrix_rate / 1e9, "GFLOP/s");
  add("decode attention", ceilings.attention_memory * machine.bandwidth / 1e9, "GB/s");
  add("start of an operation", ceilings.launch * 1e6, "us");
  add("start of a layer's attention", ceilings.attention_launch * 1e6, "us");
  add("start of a layer's element-wise operations", ceilings.elementwise_launch * 1e6, "us");
  add("norm", ceilings.norm, "");
  add("rows of an attention tile", ceilings.attention_rows, "");
  const auto add_errors = [&](const std::string& passes, const cost::PassErrors& errors) {
    add("prefill passes " + passes, errors.prefill_passes, "");
    add("decode passes " + passes, errors.decode_passes, "");
    add("error of prefill passes " + passes, percent_of(errors.prefill), "%");
    add("error of decode passes " + passes, percent_of(errors.decode), "%");
  };
  add_errors("fitted", found.fitted);
  add_errors("held out", found.held_out);
  return out;
}

/// Prints ceilings and errors, and writes the machine file. Throws what reading traces and calibrate() throw,
/// and Error(usage) for traces of different machines or thread counts.
void run_cost_calibrate(const CostCalibrateOptions& request) {
  std::optional<ResultOutput> file;
  if (!request.output.empty()) {
    require_ending(request.output, analysis::Format::json);
    file.emplace(request.output, request.overwrite);
  }
  FormattedOutput output(analysis::parse_format(request.format), "", false);
  const Recorded recorded = tools::recorded(request.traces);
  const bool known = !request.machine.empty();
  const cost::Machine base =
      known ? cost::find_machine(request.machine) : cost::unknown_machine("calibrated", memory_here());
  Calibration found = cost::calibrate(recorded.recordings, base);
  const std::string source = source_of(found, recorded.device);
  found.machine.source = known ? base.source + "; " + source : source;
  if (file) found.machine.name = std::filesystem::path(request.output).stem().string();

  analysis::Document document;
  document.analysis = "calibration";
  document.traces = recorded.traces;
  document.settings = {{"recorded_on", recorded.device}, {"base", known ? base.name : "none"}};
  document.records = records_of(found);
  document.notes = {
      "Every fifth prefill and every fifth decode pass is held out. Errors are relative, of whole "
      "passes."};
  if (!known)
    document.notes.push_back(
        "Rates are those reached; memory is this machine's. --machine NAME starts from a datasheet instead.");
  output.commit(document);
  if (file) file->commit(cost::machine_text(found.machine));
}

}  // namespace

void add_cost_calibrate(Command cost) {
  Command command = cost.add_subcommand(
      "calibrate", "Fit a machine's ceilings to the times in traces recorded on it", R"(Examples:
  kvsim cost calibrate long.h5 short.h5 -o mine.json
  kvsim cost calibrate run.h5 --machine a100-80-sxm -o mine.json
)");
  const auto options = std::make_shared<CostCalibrateOptions>();
  command.add_required("TRACE", options->traces, "", "Traces recorded on the machine");
  command.add_option("--machine", options->machine, "MACHINE",
                     "Datasheet to start from: a name (kvsim cost machines) or a file");
  command.add_option("-o,--output", options->output, "FILE", "The machine file, as --machine takes it");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command.add_option("--format", options->format, "table|csv|json|jsonl|md",
                     "What ceilings and errors are printed as");
  command.callback([options] { run_cost_calibrate(*options); });
}

}  // namespace kvsim::tools
