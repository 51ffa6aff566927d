// kvsim cost allocators: what ways to give out cache memory leave unused, for requests of given lengths.
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/pool.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/cost_document.hpp"

namespace kvsim::tools {
namespace {

using analysis::rounded_text;

struct CostAllocatorsOptions : OutputOptions {
  std::string requests{};  ///< csv with columns prompt and generated, in tokens, in order of arrival
  std::string model{}, machine{};
  std::string page = "16", max_tokens{};  ///< empty: the model's context
};

/// Static caches, powers of two, an oracle of lengths, pages.
struct Named {
  cost::Allocator allocator;
  const char* name;
};
constexpr Named kAllocators[] = {{cost::Allocator::longest, "static"},
                                 {cost::Allocator::buddy, "buddy"},
                                 {cost::Allocator::exact, "exact"},
                                 {cost::Allocator::paged, "paged"}};

std::vector<cost::Request> requests_of(const std::string& path) {
  const analysis::Records table =
      analysis::read_csv(path, {{"prompt", "tokens", ""}, {"generated", "tokens", ""}});
  const std::size_t prompt = table.column("prompt"), generated = table.column("generated");
  std::vector<cost::Request> out;
  for (const std::vector<analysis::Value>& row : table.rows) {
    const auto* p = std::get_if<std::uint64_t>(&row[prompt]);
    const auto* g = std::get_if<std::uint64_t>(&row[generated]);
    if (p == nullptr || g == nullptr)
      input_error("request " + std::to_string(out.size() + 1) + " has no whole numbers of tokens", path,
                  "Columns prompt and generated, like 161,338.");
    out.push_back({*p, *g});
  }
  return out;
}

/// Tokens whose keys and values fit what weights and runtime leave.
std::uint64_t slots_of(const cost::Model& model, const cost::Machine& machine) {
  cost::require_equal_layers(model, "an allocator");
  const std::uint64_t token = cost::full_cache_bytes(model, {}, 1, 1);
  const std::uint64_t taken = cost::weight_bytes(model, {}, 1);
  if (machine.memory < machine.reserved || machine.memory - machine.reserved < taken + token)
    usage_error("has no memory left beside the weights of " + model.name, "--machine " + machine.name);
  return (machine.memory - machine.reserved - taken) / token;
}

/// One row per allocator, over the memory that weights and runtime leave. Throws Error(usage) where a request
/// does not fit, or when all of them fit at once and no memory is ever short; Error(input) for files.
analysis::Records allocator_records(const CostAllocatorsOptions& question) {
  const cost::Model model = cost::find_model(question.model);
  const std::vector<cost::Request> requests = requests_of(question.requests);
  const std::uint64_t page = parse_tokens(question.page, "--page");
  const std::uint64_t longest =
      question.max_tokens.empty() ? model.max_context : parse_tokens(question.max_tokens, "--max-tokens");
  const std::uint64_t slots = slots_of(model, cost::find_machine(question.machine));
  analysis::Records out;
  out.columns = {{"allocator", "",
                  "static: --max-tokens each; buddy: the next power of two of the final "
                  "length; exact: the final length, known; paged: pages as they fill"},
                 {"slots", "tokens", "that the memory beside weights and runtime holds"},
                 {"used", "share", "of the memory: tokens that are there"},
                 {"reserved", "share", "slots of tokens still to come"},
                 {"internal", "share", "slots no token will ever take"},
                 {"external", "share", "free, but not for the request that waits"},
                 {"running", "", "requests at a time"},
                 {"preemptions", "", "times a request gave its pages back and began anew"}};
  for (const Named& named : kAllocators) {
    const cost::PoolUse use = cost::pool_use(named.allocator, requests, slots, longest, page);
    out.rows.push_back({std::string(named.name), slots, use.shares.used, use.shares.reserved,
                        use.shares.internal, use.external, use.running, use.preemptions});
  }
  return out;
}

void write_allocator_table(std::ostream& out, const CostAllocatorsOptions& question,
                           const analysis::Records& records) {
  out << "model    " << analysis::described(cost::find_model(question.model)) << '\n'
      << "machine  " << analysis::described(cost::find_machine(question.machine)) << '\n'
      << "memory   " << analysis::exact_field(records.rows.front()[records.column("slots")], "-")
      << " tokens beside weights and runtime\n\n";
  analysis::TextTable table;
  table.add_column("allocator", analysis::Align::left);
  for (const char* share : {"used", "reserved", "internal", "external"})
    table.add_column(std::string(share) + " %", analysis::Align::point);
  table.add_column("requests at a time", analysis::Align::point);
  table.add_column("preemp- tions", analysis::Align::right);
  for (const std::vector<analysis::Value>& row : records.rows) {
    std::vector<std::string> fields{analysis::text(row.front())};
    for (const char* share : {"used", "reserved", "internal", "external"})
      fields.push_back(rounded_text(100 * *analysis::number(row[records.column(share)]), 1));
    fields.push_back(rounded_text(*analysis::number(row[records.column("running")]), 1));
    fields.push_back(analysis::exact_field(row[records.column("preemptions")], "-"));
    table.add_row(fields);
  }
  table.print(out);
  out << "\nshares of the memory while a request waits; static: --max-tokens each; buddy: the next power of "
         "two"
         "\nof the final length; exact: the final length, known; paged: pages as they fill\n";
}

void run_cost_allocators(const CostAllocatorsOptions& options) {
  check_cost_output(options);
  const analysis::Records records = allocator_records(options);
  commit_costs(
      options, false,
      {.analysis = "cost allocators", .traces = {}, .records = records, .console = [&](std::ostream& out) {
         write_allocator_table(out, options, records);
       }});
}

}  // namespace

void add_cost_allocators(Command cost) {
  Command command = cost.add_subcommand(
      "allocators", "What ways to give out cache memory leave unused, for requests of given lengths",
      "Examples:\n  kvsim cost allocators requests.csv --model opt-13b --machine a100-40-sxm --page 16\n");
  const auto options = std::make_shared<CostAllocatorsOptions>();
  command.add_required("FILE", options->requests, "",
                       "csv with columns prompt and generated, in tokens, in order of arrival");
  command.add_required("--model", options->model, "MODEL", "As of kvsim cost estimate");
  command.add_required("--machine", options->machine, "MACHINE", "As of kvsim cost estimate");
  command.add_option("--page", options->page, "N", "Tokens per page");
  command.add_option("--max-tokens", options->max_tokens, "TOKENS",
                     "What a static cache reserves per request (default: the model's context)");
  add_output_options(command, *options);
  command.callback([options] { run_cost_allocators(*options); });
}

}  // namespace kvsim::tools
