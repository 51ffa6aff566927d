// kvsim allocate: what an allocation decides on some recorded runs, as shares, or tokens where it decides the
// total too, that fixed(shares=...) applies to others.
#include <boost/json.hpp>
#include <thread>

#include "sim/replay/allocation_pass.hpp"
#include "sim/replay/table_files.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"

namespace kvsim::tools {
namespace {

struct AllocateOptions {
  std::vector<std::string> files;
  std::string policy, budget, output, sequence, cut = "prompt";
  double sample = 1;
  unsigned threads = 0;
  std::uint64_t seed = 0;
  bool quiet = false, overwrite = false;
};

using Shares = std::vector<std::vector<double>>;

void add(Shares& sum, const Shares& shares, const std::string& file) {
  if (sum.empty()) sum.assign(shares.size(), std::vector<double>(shares[0].size()));
  if (sum.size() != shares.size() || sum[0].size() != shares[0].size())
    usage_error("has " + std::to_string(shares.size()) + " layers of " + std::to_string(shares[0].size()) +
                    " KV heads, the first trace " + std::to_string(sum.size()) + " of " +
                    std::to_string(sum[0].size()),
                file, "Shares are averaged over runs of one model.");
  for (std::size_t layer = 0; layer < sum.size(); ++layer)
    for (std::size_t head = 0; head < sum[layer].size(); ++head) sum[layer][head] += shares[layer][head];
}

Shares shares_of(const ChosenSequence& chosen, sim::Request request, bool quiet) {
  const sim::TableFiles tables(chosen.sequence);
  request.tables = &tables;
  return followed(chosen.name, quiet, [&](Progress& progress) {
    return sim::allocation_shares(chosen.sequence, request, progress);
  });
}

void run_allocate(const AllocateOptions& options) {
  sim::Request request;
  request.cells.push_back(
      {policy::parse_composition(options.policy, front_end().policies()), sim::parse_budget(options.budget)});
  request.seed = options.seed;
  request.threads = options.threads > 0 ? options.threads : std::thread::hardware_concurrency();
  require_ending(options.output, analysis::Format::json);
  ResultOutput output(options.output, options.overwrite);

  Shares mean;
  boost::json::array names;
  for (const std::size_t run : sim::sampled_runs(options.files.size(), options.sample, options.seed)) {
    for (const ChosenSequence& chosen :
         chosen_sequences(options.files[run], options.sequence, {trace::parse_cut(options.cut)})) {
      add(mean, shares_of(chosen, request, options.quiet), chosen.name);
      chosen.source->require_unchanged();
      names.emplace_back(chosen.name);
    }
  }
  boost::json::array layers;
  for (std::vector<double>& layer : mean) {
    for (double& share : layer) share /= static_cast<double>(names.size());
    layers.push_back(boost::json::array(layer.begin(), layer.end()));
  }
  if (!options.quiet)
    front_end().announce("averaged over " + std::to_string(names.size()) + " runs of " +
                         std::to_string(options.files.size()) + " traces\n");
  boost::json::object document;
  document["policy"] = request.cells[0].composition.params;
  document["budget"] = request.cells[0].budget.text;
  document["seed"] = options.seed;
  document["traces"] = std::move(names);
  const bool tokens = request.cells[0].composition.allocation.own_total();
  document[tokens ? "tokens" : "shares"] = std::move(layers);
  output.commit(boost::json::serialize(document) + "\n");
}

}  // namespace

void add_allocate_command(Command app) {
  Command command =
      app.add_subcommand("allocate", "Average what an allocation decides over recorded runs", R"(Examples:
  kvsim allocate a.h5 b.h5 c.h5 --policy xkv --budget 10% --sample 0.1 -o shares.json
  kvsim replay d.h5 --policy 'snapkv(window=8,unit=layer)+fixed(shares=shares.json)' --budget 10%
  kvsim allocate a.h5 b.h5 --policy 'xkv(r_avg=0.9)' --budget 100% -o tokens.json
  kvsim replay d.h5 --policy 'snapkv(window=8,unit=layer)+fixed(shares=tokens.json,as=tokens)' --budget 100%
)");
  const auto options = std::make_shared<AllocateOptions>();
  command.add_required("TRACE", options->files, "", "Traces of one model");
  command.add_required("--policy", options->policy, "POLICY",
                       "eviction+allocation, or a preset (kvsim policy list)");
  command.add_required("--budget", options->budget, "BUDGET",
                       "Tokens per lane (128), share of the prompt (25%), bytes (64MiB)");
  command.add_option("--sample", options->sample, "SHARE",
                     "Share of the traces that is looked at, at least one, drawn by --seed",
                     between(0.0, 1.0));
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  command.add_option("--cut", options->cut, "CUT", kCutHelp);
  command.add_option("-o,--output", options->output, "FILE",
                     "The shares go to this file instead of standard output");
  add_threads(command, options->threads, 4096);
  command.add_option("--seed", options->seed, "N", "Of the sample and of random policies");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing output file");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { run_allocate(*options); });
}

}  // namespace kvsim::tools
