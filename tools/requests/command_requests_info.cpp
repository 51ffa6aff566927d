// kvsim requests info: how many requests, how long, how much they share.
#include <memory>

#include "tools/options/output_options.hpp"
#include "tools/printing/formatted_output.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/request_table.hpp"
#include "tools/requests/requests_commands.hpp"

namespace kvsim::tools {
namespace {

struct RequestsInfoOptions : OutputOptions {
  std::vector<std::string> files{};
  RequestOptions reading{};
  bool quiet = false;
};

void run_requests_info(const RequestsInfoOptions& options) {
  FormattedOutput output(options);
  std::vector<NamedRequests> traces;
  for (const std::string& file : options.files) {
    const requests::RequestTrace trace = read_shown(file, read_options(options.reading), options.quiet);
    traces.push_back({.name = file,
                      .format = trace.format,
                      .block_tokens = trace.block_tokens,
                      .hashing = trace.hashing,
                      .tail = trace.tail,
                      .generated = trace.generated,
                      .summary = prefix::summarize(trace)});
  }
  output.commit({.analysis = "requests info",
                 .traces = {},
                 .records = request_records(traces),
                 .console = [&](std::ostream& out) { write_requests_text(out, traces); }});
}

}  // namespace

void add_requests_info(Command requests) {
  Command command = requests.add_subcommand(
      "info", "What traces hold: requests, lengths, arrivals, what prompts share, the ceiling of any cache",
      R"(Examples:
  kvsim requests info traces/sample/requests/mooncake_conversation.jsonl.gz
  kvsim requests info a.jsonl.gz b.jsonl.gz --format csv
  kvsim requests info mine.jsonl --block-tokens 16 --generated inferred
)");
  const auto options = std::make_shared<RequestsInfoOptions>();
  command.add_required("FILE", options->files, "", "Traces of requests, gzip or not; -: standard input");
  add_request_options(command, options->reading);
  add_output_options(command, *options);
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { run_requests_info(*options); });
}

}  // namespace kvsim::tools
