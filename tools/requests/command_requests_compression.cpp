// kvsim requests compression: prefix caching, compression, or both, of one traffic on equal memory.

#include "analysis/asked/asked_cells.hpp"
#include "analysis/requests/compression.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "tools/requests/served_options.hpp"

namespace kvsim::tools {
namespace {

struct RequestsCompressionOptions : RequestRun {
  std::string memory{}, rate = "1";
  std::vector<std::string> policies{}, budgets{}, answers{};
  ServedOptions served{};
  LimitOptions limits{};
  std::uint64_t max_sequences = 256, step_tokens = 2048;
  double least_full = 0.9;
};

analysis::Records read_answers(const std::vector<std::string>& files) {
  analysis::Records out;
  for (const std::string& file : files) {
    for (analysis::NamedTable& table : analysis::read_tables(file)) {
      if (out.columns.empty()) {
        out = std::move(table.records);
        continue;
      }
      analysis::expect_columns(table.records, out.columns, file);
      analysis::append_rows(out, std::move(table.records));
    }
  }
  return out;
}

analysis::CompressionGrid grid_of(const RequestsCompressionOptions& options) {
  analysis::CompressionGrid grid;
  analysis::ServingGrid& serving = grid.serving;
  serving.served = parse_served(options.served);
  serving.memories = parse_memories(options.memory, serving.served, options.step_tokens);
  serving.rates = parse_rates(options.rate);
  serving.policies = {policy::parse_replacement("lru", front_end().policies())};
  serving.engine.max_sequences = small_count(options.max_sequences, "--max-sequences");
  serving.engine.step_tokens = options.step_tokens;
  const analysis::CostLimits limits = parse_limits(options.limits, serving.served.machine.memory);
  serving.slo = {limits.first_token, limits.per_token};
  serving.threads = options.threads;
  for (const std::string& policy : analysis::chosen_policies(options.policies, front_end().policies()))
    grid.policies.push_back(policy::parse_composition(policy, front_end().policies()));
  for (const std::string& list : options.budgets)
    for (sim::Budget& budget : sim::parse_budgets(list)) grid.budgets.push_back(std::move(budget));
  if (!options.answers.empty()) grid.answers = read_answers(options.answers);
  grid.least_full = options.least_full;
  return grid;
}

void run_requests_compression(const RequestsCompressionOptions& options) {
  FormattedOutput output(options);
  const analysis::CompressionGrid grid = grid_of(options);
  const requests::RequestTrace trace = read_shown(options);
  require_blocks(trace, options.file,
                 "Nothing in it could be used again: kvsim requests serve has its queues.");
  const auto rows = followed("serving", options.quiet, [&](Progress& progress) {
    auto made = compression_rows(trace, grid, &progress);
    progress.check();
    return made;
  });
  analysis::Document document{.analysis = "requests compression", .traces = {}, .records = {}};
  document.settings = {{"model", grid.serving.served.model.name},
                       {"machine", grid.serving.served.machine.name},
                       {"tensor_parallel", grid.serving.served.serving.tensor_parallel},
                       {"max_sequences", std::uint64_t{grid.serving.engine.max_sequences}},
                       {"step_tokens", grid.serving.engine.step_tokens},
                       {"file", options.file}};
  document.records = compression_records(rows);
  document.console = [&](std::ostream& out) { write_compression_table(out, grid, rows); };
  document.page = [&](std::ostream& out) { write_compression_page(out, grid, rows, options.file); };
  output.commit(document);
}

}  // namespace

void add_requests_compression(Command requests) {
  Command command = requests.add_subcommand(
      "compression", "Compress, share prefixes, or both: one traffic on equal memory, and what still answers",
      R"(Examples:
  kvsim requests compression traces/sample/requests/mooncake_conversation.jsonl.gz --limit 2000 --model llama-3.1-8b --machine h100-sxm --rate 0.5 --policy snapkv --policy keydiff --policy 'full+kivi(bits=2)' --budget 25%
  kvsim requests compression mine.jsonl --model llama-3.1-8b --machine h100-sxm --memory 16GiB,48GiB --policy snapkv --budget 25% --answers answers.csv -o page.md
)");
  const auto options = std::make_shared<RequestsCompressionOptions>();
  add_request_file(command, *options);
  add_served_options(command, options->served);
  command.add_option("--memory", options->memory, "LIST",
                     "Comma list of bytes for keys and values on each device (default: 90% of its memory\n"
                     "without weights, activations and what the runtime takes)");
  command.add_required("--policy", options->policies, "POLICY", "That compresses, as of kvsim cost estimate");
  command.add_option("--budget", options->budgets, "LIST",
                     "Comma list of what a policy keeps of a prompt: 25%, 2K tokens per lane");
  command.add_option(
      "--answers", options->answers, "FILE",
      "Rows of kvsim evaluate with the same policies and budgets, at cuts prompt and question:\nwho still "
      "answers");
  command.add_option(
      "--least-full", options->least_full, "SHARE",
      "Share of a workload's questions that the full cache must answer, or the workload does\nnot count",
      between(0.0, 1.0));
  command.add_option("--rate", options->rate, "LIST", "Comma list: so many times as fast as the trace");
  command.add_option("--max-sequences", options->max_sequences, "N", "That run at a time");
  command.add_option("--step-tokens", options->step_tokens, "TOKENS", "That a step computes, at most",
                     token_count());
  command.add_option("--ttft", options->limits.first_token, "TIME", "Limit of a good request, like 2s");
  command.add_option("--tpot", options->limits.per_token, "TIME", "Limit of a good request, like 50ms");
  add_run_options(command, *options);
  command.callback([options] { run_requests_compression(*options); });
}

}  // namespace kvsim::tools
