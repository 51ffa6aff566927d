// kvsim requests generate: traces of requests whose sharing is known, or that of another trace.

#include "tools/options/option_numbers.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "traces/requests/generate_requests.hpp"
#include "traces/requests/like_requests.hpp"

namespace kvsim::tools {
namespace {

struct RequestsGenerateOptions {
  requests::GenerateOptions generated{};
  std::uint64_t block_tokens = 512;
  std::string mix = "chat=0.6,document=0.3,agent=0.1", shape{}, arrivals = "poisson", turns = "waiting";
  std::string like{}, to{}, output{};
  bool overwrite = false, quiet = false;
};

std::string requests_generate_footer() {
  std::string text = R"(Examples:
  kvsim requests generate -o synthetic.jsonl.gz
  kvsim requests generate --requests 20000 --rate 5 --mix agent=1 --arrivals bursty --to bailian -o agents.jsonl.gz
  kvsim requests generate --shape system_prompts=1,chat_turns=12 --block-tokens 16 --turns timed -o chat.jsonl
  kvsim requests generate --like mine.jsonl.gz -o shareable.jsonl.gz

Settings of --shape:
)";
  for (const ParamSpec& param : requests::shape_params()) {
    std::string name = param.name;
    name.resize(20, ' ');
    std::string fallback = param.fallback;
    fallback.resize(7, ' ');
    text += "  " + name + fallback + param.help + (param.unit.empty() ? "" : " (" + param.unit + ")") + "\n";
  }
  return text;
}

requests::Arrivals arrivals_named(const std::string& name) {
  if (name == "poisson") return requests::Arrivals::poisson;
  return name == "bursty" ? requests::Arrivals::bursty : requests::Arrivals::diurnal;
}

/// An option that a trace with the sharing of another has no use for is a misunderstanding.
void refuse_with_like(Command command) {
  for (const char* name :
       {"--requests", "--rate", "--block-tokens", "--mix", "--shape", "--arrivals", "--turns"})
    if (!command.option(name).empty())
      usage_error("means nothing with --like", name,
                  "The other trace says it: only ids and lengths are new.");
}

requests::RequestTrace made(Command command, RequestsGenerateOptions& options) {
  if (!options.like.empty()) {
    refuse_with_like(command);
    return requests::like_requests(read_shown(options.like, {}, options.quiet), options.generated.seed);
  }
  requests::GenerateOptions& generated = options.generated;
  generated.block_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.block_tokens, UINT32_MAX));
  generated.mix = requests::parse_mix(options.mix);
  generated.shape = requests::parse_shape(options.shape);
  generated.arrivals = arrivals_named(options.arrivals);
  generated.after_parent = options.turns == "waiting";
  return requests::generate_requests(generated);
}

void run_requests_generate(Command command, RequestsGenerateOptions& options) {
  refuse_requests_output(options.output, options.overwrite);
  write_shown(made(command, options), options.output, options.to, options.overwrite, options.quiet);
}

}  // namespace

void add_requests_generate(Command requests) {
  Command command = requests.add_subcommand(
      "generate", "Make a trace: conversations, documents with questions, agents, or the sharing of another",
      requests_generate_footer());
  const auto options = std::make_shared<RequestsGenerateOptions>();
  requests::GenerateOptions& generated = options->generated;
  command.add_option("--requests", generated.requests, "N", "How many");
  command.add_option("--rate", generated.rate, "R", "Sessions that begin in a second, on average");
  command.add_option("--block-tokens", options->block_tokens, "TOKENS", "Tokens per block", token_count());
  command.add_option("--seed", generated.seed, "S", "Same seed, same bytes");
  command.add_option("--mix", options->mix, "KIND=SHARE,..", "Shares of the kinds of sessions");
  command.add_option("--arrivals", options->arrivals, "poisson|bursty|diurnal",
                     "How sessions begin: independently, in bursts, or with the time of day",
                     hidden(one_of({"poisson", "bursty", "diurnal"})));
  command.add_option("--turns", options->turns, "waiting|timed",
                     "Later turns wait for the end of the turn before, or have times of their own",
                     hidden(one_of({"waiting", "timed"})));
  command.add_option("--shape", options->shape, "NAME=VALUE,..",
                     "Lengths, numbers, popularities: see the settings");
  command.add_option(
      "--like", options->like, "FILE",
      "Instead: the arrivals and the sharing of this trace, with new ids and lengths dealt out anew");
  add_written_format(command, options->to);
  command.add_required("-o,--output", options->output, "FILE", "The file, gzip if its name ends with .gz");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.add_flag("-q,--quiet", options->quiet, "No progress and no notes");
  group_options(command, "Traffic",
                {"--requests", "--rate", "--block-tokens", "--seed", "--mix", "--arrivals", "--turns",
                 "--shape", "--like"});
  command.callback([command, options] { run_requests_generate(command, *options); });
}

}  // namespace kvsim::tools
