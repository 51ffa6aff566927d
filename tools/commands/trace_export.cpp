#include <filesystem>
#include <ostream>
#include <sstream>

#include "sim/base/number_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"
#include "tools/printing/trace_summary.hpp"
#include "traces/format/exported_arrays.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::tools {
namespace {

struct TraceExportOptions {
  std::string file, output;
  bool overwrite = false, quiet = false;
};

void export_trace(const TraceExportOptions& options) {
  require_trace(options.file);
  refuse_output(options.output, options.overwrite);
  const std::unique_ptr<trace::Source> source = trace::open_trace(options.file);
  std::ostringstream description;
  write_trace_json(description, *source);
  followed("exporting " + options.file, options.quiet, [&](Progress& progress) {
    trace::export_arrays(*source, options.output, options.overwrite, description.str(), progress);
  });
  front_end().results() << options.output << " (" << bytes_text(std::filesystem::file_size(options.output))
                        << ")\n";
}

}  // namespace

void add_trace_export(Command trace) {
  Command command = trace.add_subcommand("export", "Writes a trace's tensors as arrays for PyTorch and NumPy",
                                         R"(Examples:
  kvsim trace export run.h5 -o run.safetensors
  kvsim trace export run.h5 -o run.npz

Arrays: layers.0.q, .k, .v [heads, rows, dim] of each layer, and .wo, as
stored, queries and keys after RoPE; token_ids, positions, flags [tokens],
inv_freq, and where the trace has them q_token, sinks, text_offset, text_bytes.
Of capture --attention layers.0.attention [query heads, rows, tokens], 0 where
a row's token does not see, and attention_token: the token of each row.
Of slim traces layers.0.column_sum and .column_sum_squares [query heads, tokens
of the prompt]: the attention that each of these received from them.
What kvsim trace info --format json says is the metadata "kvsim" of safetensors,
the array "description" of .npz. NumPy has no bfloat16: .npz holds its bits as
uint16. Times stay behind.
)");
  const auto options = std::make_shared<TraceExportOptions>();
  command.add_required("TRACE", options->file, "", "Trace");
  command.add_required("-o,--output", options->output, "FILE", "To write: .safetensors or .npz");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { export_trace(*options); });
}

}  // namespace kvsim::tools
