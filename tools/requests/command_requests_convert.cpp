// kvsim requests convert: a trace of requests in a format that other tools read.

#include "sim/requests/prefix/prefix_tree.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"

namespace kvsim::tools {
namespace {

struct RequestsConvertOptions {
  std::string file{}, to{}, output{};
  RequestOptions reading{};
  bool sort = false, overwrite = false, quiet = false;
};

void run_requests_convert(const RequestsConvertOptions& options) {
  refuse_requests_output(options.output, options.overwrite);
  requests::ReadOptions reading = read_options(options.reading);
  reading.sort = options.sort;
  const requests::RequestTrace trace = read_shown(options.file, reading, options.quiet);
  // A trace whose ids change their prefix would be written as another one.
  if (trace.has_blocks()) prefix::PrefixTree{trace};
  write_shown(trace, options.output, options.to, options.overwrite, options.quiet);
}

}  // namespace

void add_requests_convert(Command requests) {
  Command command =
      requests.add_subcommand("convert", "Write a trace in a format that other tools read", R"(Examples:
  kvsim requests convert lookup_hashes_0.jsonl -o mine.jsonl.gz
  kvsim requests convert sessions.jsonl --to bailian --block-tokens 16 -o turns.jsonl
  kvsim requests convert mixed.jsonl --sort -o sorted.jsonl
)");
  const auto options = std::make_shared<RequestsConvertOptions>();
  command.add_required("FILE", options->file, "", "Trace of requests, gzip or not; -: standard input");
  add_request_options(command, options->reading);
  add_written_format(command, options->to);
  command.add_flag("--sort", options->sort, "Put requests into the order of their times");
  command.add_required("-o,--output", options->output, "FILE", "The file, gzip if its name ends with .gz");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.add_flag("-q,--quiet", options->quiet, "No progress and no notes");
  command.callback([options] { run_requests_convert(*options); });
}

}  // namespace kvsim::tools
