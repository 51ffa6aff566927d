#include <ostream>

#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"
#include "traces/comparison/joined_ranks.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::tools {
namespace {

struct TraceJoinOptions {
  std::vector<std::string> files;
  std::string output;
  bool overwrite = false;
};

void join_ranks(const TraceJoinOptions& options) {
  require_ending(options.output, analysis::Format::h5);
  refuse_output(options.output, options.overwrite);
  std::vector<std::unique_ptr<trace::Source>> ranks;
  for (const std::string& file : options.files) {
    require_trace(file);
    ranks.push_back(trace::open_trace(file));
  }
  const trace::JoinedRanks joined(std::move(ranks));
  trace::WriteOptions writing;
  writing.overwrite = options.overwrite;
  trace::write_trace(options.output, joined, writing);
  joined.require_unchanged();
  const trace::Model& model = joined.header().model;
  front_end().results() << options.output << ": " << model.n_layers << " layers, " << model.n_q_heads
                        << " query heads, " << model.n_kv_heads << " KV heads\n";
}

}  // namespace

void add_trace_join(Command trace) {
  Command command = trace.add_subcommand(
      "join", "Joins the traces of tensor-parallel ranks, each with a part of the heads, to one", R"(Examples:
  kvsim trace join run-0.h5 run-1.h5 -o run.h5

Traces of kvsim.vllm say which rank they are, and how many ranks share a KV
head. Others are taken in the order in which they are given.
)");
  const auto options = std::make_shared<TraceJoinOptions>();
  command.add_required("TRACE", options->files, "", "A trace of each rank");
  command.add_required("-o,--output", options->output, "", "Trace to write");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.callback([options] { join_ranks(*options); });
}

}  // namespace kvsim::tools
