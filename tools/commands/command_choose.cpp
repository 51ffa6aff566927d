// kvsim choose: the setting of a cache that answers best under a cap, on prompts that the search never saw.
#include <iomanip>
#include <ostream>

#include "analysis/choice/choice_report.hpp"
#include "analysis/choice/choose.hpp"
#include "analysis/choice/choose_by_losses.hpp"
#include "analysis/choice/shared_tasks.hpp"
#include "analysis/study/rank_leader.hpp"
#include "sim/base/files.hpp"
#include "sim/base/number_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "tools/options/cost_options.hpp"
#include "tools/options/mistaken_files.hpp"
#include "traces/capture/chat_prompt.hpp"

namespace kvsim::tools {
namespace {

struct ChooseOptions {
  analysis::ChoiceRequest request;
  std::vector<std::string> traces;
  std::string sequence, fields, memory, share, tpot, cut = "prompt", loss = "1%";
  CostOptions served;
  std::optional<std::uint64_t> max_new_tokens;
  bool chat = false, quiet = false;
};

/// What a step of a batch may take.
analysis::CacheCap step_cap(const ChooseOptions& options) {
  CostOptions served = options.served;
  served.model = checkpoint_at(options.request.model);
  analysis::CacheCap cap;
  cap.served = cost_study(served, asked_model(served));
  cap.limits = {.memory = cap.served->machine.memory, .per_token = parse_seconds(options.tpot, "--tpot")};
  cap.text = options.tpot + " a token, batch " + served.batch + ", " + served.machine;
  return cap;
}

analysis::CacheCap cap_of(const ChooseOptions& options) {
  const bool timed = !options.tpot.empty();
  if (options.memory.empty() + options.share.empty() + !timed != 2)
    usage_error("give the cap as bytes, as a share of the full cache's, or as the time of a step",
                "--memory, --share, --tpot", "Give one of them.");
  if (timed != !options.served.machine.empty())
    usage_error("go together", "--tpot and --machine", "The machine tells how long a step takes.");
  if (timed) return step_cap(options);
  if (!options.share.empty()) {
    const double share = parse_share(options.share, "--share");
    if (share <= 0) usage_error("leaves nothing", "--share", "Say 10% for example.");
    return {.share = share, .text = options.share};
  }
  const std::optional<std::uint64_t> bytes = bytes_of(options.memory);
  if (!bytes || *bytes == 0)
    usage_error("not a size: '" + options.memory + "'", "--memory", "Say 512MiB, 2GiB or 500MB.");
  return {.bytes = *bytes, .text = options.memory};
}

void print(const std::vector<analysis::ChoiceFact>& facts, const std::string& folder) {
  std::ostream& out = front_end().results();
  const auto line = [&](const std::string& name, const std::string& text) {
    out << std::left << std::setw(11) << name;
    for (const char each : text) out << each << (each == '\n' ? std::string(11, ' ') : "");
    out << '\n';
  };
  for (const analysis::ChoiceFact& fact : facts) line(fact.name, fact.text);
  line("tables", folder + "/tables");
  line("page", folder + '/' + analysis::kChoicePage);
}

/// The choice; of ranks 1 and up without a word: rank 0 tells.
analysis::Choice made_choice(ChooseOptions& options, analysis::Ranks* ranks, bool quiet) {
  analysis::ChoiceRequest& request = options.request;
  request.cap = cap_of(options);
  request.evaluation.cuts = {trace::parse_cut(options.cut)};
  if (ranks != nullptr && request.evaluation.threads == 0) request.evaluation.threads = ranks->threads();
  request.items =
      capture::parse_workload(read_file(options.request.workload, capture::kMaxWorkloadBytes),
                              options.request.workload, capture::parse_line_fields(options.fields));
  const std::string folder = checkpoint_at(request.model);
  analysis::Evaluation model(folder);
  std::vector<std::string> notes;
  capture::apply_chat(request.items, folder, options.chat, notes);
  request.evaluation.max_new_tokens =
      options.max_new_tokens.value_or(analysis::tokens_to_generate(request.items, model.tokenizer()));
  if (!quiet)
    for (const std::string& text : notes) note(text);
  return followed("choose", quiet, [&](Progress& progress) {
    return analysis::choose(request, model, front_end().policies(), progress, ranks);
  });
}

/// Without a checkpoint: by what replays of recorded runs lose.
void choose_by_losses(const ChooseOptions& options) {
  if (!options.request.model.empty() || !options.request.workload.empty() || !options.tpot.empty() ||
      options.request.resume)
    usage_error("cannot be with a model", "--trace", "Leave --model, --workload, --tpot and --resume out.");
  const trace::Cut cut = trace::parse_cut(options.cut);
  std::vector<ChosenSequence> runs;
  for (const std::string& file : options.traces)
    for (ChosenSequence& run : chosen_sequences(file, options.sequence, {cut}))
      runs.push_back(std::move(run));
  const analysis::ChoiceRequest& asked = options.request;
  analysis::LossChoiceRequest request{asked.folder,    options.traces, cut,        {},
                                      cap_of(options), asked.settings, asked.seed, asked.evaluation.threads};
  for (const ChosenSequence& run : runs) request.runs.push_back(&run.sequence);
  const analysis::LossChoice choice = followed("choose", options.quiet, [&](Progress& progress) {
    return analysis::choose_by_losses(request, front_end().policies(), progress);
  });
  print(analysis::facts_of(request, choice), asked.folder);
}

void choose(ChooseOptions& options) {
  if (!options.traces.empty()) return choose_by_losses(options);
  if (options.request.model.empty() || options.request.workload.empty())
    usage_error("says what answers, and what", "--model, --workload",
                "Give both, or recorded runs: --trace FILE, which are replayed.");
  analysis::Ranks* const ranks = front_end().ranks();
  const auto lead = [&] {
    options.request.margin = parse_share(options.loss, "--loss");
    const analysis::Choice choice = made_choice(options, ranks, options.quiet);
    print(analysis::facts_of(options.request, choice), options.request.folder);
  };
  if (ranks == nullptr) return lead();
  if (ranks->rank() == 0) return analysis::lead_ranks(*ranks, lead);
  const int code = analysis::help_choosing(*ranks, [&] { made_choice(options, ranks, true); });
  if (code != 0) throw Error(static_cast<ErrorKind>(code), "");
}

}  // namespace

void add_choose_command(Command app) {
  Command command =
      app.add_subcommand("choose", "Find the setting of a cache that answers best under a cap", R"(Examples:
  kvsim choose --model DIR --workload mine.jsonl --share 10% -o choice
  kvsim choose --model DIR --workload mine.jsonl --memory 4MiB --cut question --settings 200 -o choice
  kvsim choose --model DIR --workload mine.jsonl --tpot 12ms --batch 16 --machine a100-80-sxm -o choice
  kvsim choose --trace run1.h5 --trace run2.h5 --share 25% -o choice
)");
  const auto options = std::make_shared<ChooseOptions>();
  analysis::ChoiceRequest& request = options->request;
  command.add_option("--model", request.model, "DIR", "As of kvsim evaluate");
  command.add_option("--workload,--prompts", request.workload, "FILE",
                     "Prompts and answers, as of kvsim evaluate; half of them search, half confirm");
  command.add_option(
      "--trace", options->traces, "FILE",
      "A recorded run, again for each, instead of a model and prompts: chooses by what replays lose");
  command.add_option("--sequence", options->sequence, "N|all", kSequenceHelp);
  command.add_option("--fields", options->fields, "LIST",
                     "Other names of its fields, such as prompt=instruction,answers=gold");
  command.add_flag("--chat", options->chat,
                   "Put prompts into the model's chat template, as kvsim capture does");
  command.add_option("--share", options->share, "SHARE",
                     "The cap: so much of the bytes of the full cache of each prompt, 10%");
  command.add_option("--memory", options->memory, "SIZE", "The cap: bytes of the cache of one prompt, 4MiB");
  command.add_option("--tpot", options->tpot, "TIME",
                     "The cap: time of a step of --batch sequences on --machine, 12ms: every setting keeps\n"
                     "as much as kvsim cost fit says");
  command.add_option("--batch", options->served.batch, "N", "Sequences that the machine serves at once");
  command.add_option("--machine", options->served.machine, "MACHINE", "Name (kvsim cost machines) or a file");
  command.add_option(
      "--cut", options->cut, "CUT",
      "Where the prompt ends for policies: prompt (the question is known), question (it is not)");
  command
      .add_option(
          "--settings", request.settings, "N",
          "How many settings are drawn: published systems, evictions with their parameters,\nallocations and representations")
      .check(between(std::size_t{1}, std::size_t{100000}));
  command.add_option("--loss", options->loss, "SHARE",
                     "Margin that the answers of the winner are compared with");
  command.add_option("--max-new-tokens", options->max_new_tokens, "N", "As of kvsim evaluate", token_count());
  command.add_option("--elem", request.evaluation.elem, "auto|f32|bf16|f16", "Type of the cache");
  command.add_option("--seed", request.seed, "N",
                     "Of the settings, the split of the prompts, and random policies");
  command.add_required("-o,--output", request.folder, "DIR", "Folder for what was found");
  command.add_flag("--resume", request.resume, "Go on where a choice in that folder was stopped");
  add_threads(command, request.evaluation.threads, 1024);
  add_memory_limit(command, request.evaluation.memory_limit, "As of kvsim evaluate");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { choose(*options); });
}

}  // namespace kvsim::tools
