// kvsim requests batch: a trace as batches that are known in advance: rows of prompts, reads of steps.

#include "analysis/requests/batch_tables.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "tools/requests/served_options.hpp"

namespace kvsim::tools {
namespace {

struct RequestsBatchOptions : RequestRun {
  ServedOptions served{};
  std::string method{}, batch = "64", memory{};
};

/// All that the trace tells enough for.
std::vector<serving::Batching> possible_methods(const requests::RequestTrace& trace) {
  std::vector<serving::Batching> out;
  for (const std::string& name : serving::batching_names()) {
    const serving::Batching method = serving::parse_batching(name);
    if (trace.has_blocks() || !needs_blocks(method)) out.push_back(method);
  }
  return out;
}

analysis::BatchGrid grid_of(const RequestsBatchOptions& options) {
  analysis::BatchGrid grid;
  grid.served = parse_served(options.served);
  if (!options.method.empty()) {
    grid.methods.clear();
    for (const std::string& item : comma_list(options.method))
      grid.methods.push_back(serving::parse_batching(item));
  }
  grid.requests.clear();
  for (const std::string& item : comma_list(options.batch))
    grid.requests.push_back(small_count(parse_count(item, "--batch"), "--batch"));
  constexpr std::uint64_t kStepTokens = 2048;  // as engines of kvsim requests serve have room for
  grid.memory = options.memory.empty() ? usual_memory(grid.served, kStepTokens)
                                       : parse_bytes(options.memory, "--memory");
  grid.threads = options.threads;
  return grid;
}

void run_requests_batch(const RequestsBatchOptions& options) {
  FormattedOutput output(options);
  analysis::BatchGrid grid = grid_of(options);
  const requests::RequestTrace trace = read_shown(options);
  if (options.method.empty()) grid.methods = possible_methods(trace);
  const auto rows = followed("batching", options.quiet, [&](Progress& progress) {
    auto made = batch_rows(trace, grid, &progress);
    progress.check();
    return made;
  });
  analysis::Document document{.analysis = "requests batch", .traces = {}, .records = {}};
  document.settings = {{"model", grid.served.model.name},
                       {"machine", grid.served.machine.name},
                       {"tensor_parallel", grid.served.serving.tensor_parallel},
                       {"memory_bytes", grid.memory},
                       {"file", options.file}};
  document.records = batch_records(rows, grid);
  document.console = [&](std::ostream& out) { write_batch_table(out, grid, rows); };
  output.commit(document);
}

}  // namespace

void add_requests_batch(Command requests) {
  Command command = requests.add_subcommand(
      "batch", "Batch a trace that is known in advance: padding, packing, groups of one prefix, shared reads",
      R"(Examples:
  kvsim requests batch traces/sample/requests/mooncake_conversation.jsonl.gz --model llama-3.1-8b --machine h100-sxm
  kvsim requests batch mine.jsonl --model llama-3.1-8b --machine a100-80-sxm --batch 16,64,256 --method padded,packed --format csv

Methods:
  padded    every prompt has a row, as long as the longest of the batch
  sorted    the same of requests in order of falling length
  packed    prompts share rows of that length (Prepacking)
  unpadded  every prompt has a row of its own length
  cached    without the blocks that an LRU cache of the whole memory has
  grouped   in groups of one common prefix, which is computed once (BatchLLM)
Shared reads: steps read blocks that sequences have in common once for all of them (Hydragen).
)");
  const auto options = std::make_shared<RequestsBatchOptions>();
  add_request_file(command, *options);
  add_served_options(command, options->served);
  command.add_option("--method", options->method, "LIST",
                     "Comma list: padded, sorted, packed, unpadded, cached, grouped (default: all that the\n"
                     "trace tells enough for)");
  command.add_option("--batch", options->batch, "LIST", "Comma list: requests of a batch, at most");
  command.add_option("--memory", options->memory, "BYTES",
                     "Bytes for keys and values on each device, which no batch exceeds (default: 90% of its\n"
                     "memory without weights, activations and what the runtime takes)");
  add_run_options(command, *options);
  command.callback([options] { run_requests_batch(*options); });
}

}  // namespace kvsim::tools
