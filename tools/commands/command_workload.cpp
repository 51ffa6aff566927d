// kvsim workload: prompts with answers, made to a tokenizer's token count.

#include "sim/base/files.hpp"
#include "tools/commands/command.hpp"
#include "traces/capture/chat_prompt.hpp"
#include "traces/model/hub_cache.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/workloads/workload.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kWorkloadExamples = R"(Examples:
  kvsim workload needle --context 1000 --count 8 --seed 1 -o prompts.jsonl
  kvsim workload needle-multi-key --facts 8 --context 2000 --count 24 -o prompts.jsonl
  kvsim workload needle --context 1000 --chat --tokenizer ~/models/SmolLM2-135M-Instruct -o prompts.jsonl
  kvsim capture --model traces/sample/model --workload prompts.jsonl --item needle-1000-s1-0 -o run.h5

Kinds:
)";

struct WorkloadOptions {
  std::string kind, style = "pairs", tokenizer_dir = "traces/sample/model", text_file, output;
  bool overwrite = false, chat = false;
  workload::WorkloadOptions workload;
};

std::string workload_footer() {
  std::string text = kWorkloadExamples;
  for (const workload::Kind& kind : workload::kinds()) {
    std::string name = kind.name;
    name.resize(20, ' ');
    text += "  " + name + kind.summary + "\n";
  }
  return text;
}

model::Tokenizer find_tokenizer(const std::string& model) {
  const std::string folder = model::local_checkpoint(model);
  if (!model::has_tokenizer(folder)) {
    input_error("no tokenizer.json and no tokenizer.model", folder,
                "Name the folder of the model that will read the prompts: --tokenizer DIR.");
  }
  return model::load_tokenizer(folder);
}

/// The prompts of --chat: the message of a user in the tokenizer's chat template.
class ChatPrompts {
 public:
  ChatPrompts(const std::string& model, const model::Tokenizer& tokenizer)
      : chat_(model::load_chat_template(model)), tokenizer_(tokenizer) {
    if (!chat_.note().empty()) front_end().note(chat_.note());
  }

  std::uint64_t tokens(const workload::SpannedText& text) const {
    const std::vector<model::ChatMessage> message{{"user", text.text().substr(0, text.answer_begin())}};
    const std::string begun = text.text().substr(text.answer_begin());
    return tokenizer_.encode(chat_.render(message, "--chat").text + begun, false).size();
  }

  void put(workload::PromptItem& item) const {
    capture::WorkloadItem in{.id = item.id,
                             .prompt = item.prompt,
                             .answer_prefix = item.answer_prefix,
                             .spans = item.spans,
                             .expect = item.expect,
                             .answers = item.answers};
    capture::put_into_chat(in, chat_);
    item.prompt = in.prompt;
    item.spans = in.spans;
    item.expect = in.expect;
    item.answers = in.answers;
    item.chat = in.chat;
    std::string answered = item.prompt;
    for (const std::string& answer : item.answers) answered += item.answer_prefix > 0 ? answer : ' ' + answer;
    item.answer_tokens = tokenizer_.encode(answered, false).size() - item.tokens;
  }

 private:
  model::ChatTemplate chat_;
  const model::Tokenizer& tokenizer_;
};

/// An option that a kind does not look at is a misunderstanding.
void refuse_unused(Command command, const workload::Kind& kind) {
  const std::pair<const char*, unsigned> options[] = {{"--facts", workload::kUsesFacts},
                                                      {"--hops", workload::kUsesHops},
                                                      {"--style", workload::kUsesStyle},
                                                      {"--text", workload::kUsesText}};
  for (const auto& [name, bit] : options) {
    if (!command.option(name).empty() && (kind.uses & bit) == 0)
      usage_error(std::string("means nothing to the kind ") + kind.name, name);
  }
}

void run_workload_command(Command command, WorkloadOptions& options) {
  const workload::Kind& kind = workload::kind_named(options.kind);
  refuse_unused(command, kind);
  options.workload.task.style = workload::style_of_name(options.style, "--style");
  require_ending(options.output, analysis::Format::jsonl);
  ResultOutput output(options.output, options.overwrite);
  const model::Tokenizer tokenizer = find_tokenizer(options.tokenizer_dir);
  std::vector<workload::Passage> own;
  if (!options.text_file.empty())
    own.push_back({options.text_file, read_file(options.text_file, model::kMaxTextBytes)});
  options.workload.task.passages = own.empty() ? &workload::builtin_passages() : &own;
  const std::optional<ChatPrompts> chat =
      options.chat ? std::make_optional<ChatPrompts>(options.tokenizer_dir, tokenizer) : std::nullopt;
  std::string lines;
  workload::make_workload(
      kind, options.workload,
      [&](const workload::SpannedText& text) {
        return chat ? chat->tokens(text) : tokenizer.encode(text.text()).size();
      },
      [&](workload::PromptItem item) {
        if (chat) chat->put(item);
        (lines += json_line(item)) += '\n';
      });
  output.commit(lines);
}

}  // namespace

void add_workload_command(Command app) {
  Command command =
      app.add_subcommand("workload", "Make prompts with answers, of a given length", workload_footer());
  const auto options = std::make_shared<WorkloadOptions>();
  workload::WorkloadOptions& workload = options->workload;
  command.add_required("KIND", options->kind, "", "What is to be done: see the kinds");
  command.add_required("--context", workload.context_tokens, "TOKENS",
                       "Tokens of each prompt, question included: never more, and less by a word at most",
                       token_count());
  command.add_option("--count", workload.count, "M", "Prompts");
  command.add_option("--seed", workload.seed, "S", "Same seed, same bytes");
  command.add_option("--facts", workload.task.facts, "K",
                     "Facts to hide, values of a key, or questions to ask");
  command.add_option("--hops", workload.task.hops, "H", "Copies between a value and the variable asked for");
  command.add_option("--style", options->style, "pairs|sentences|ruler",
                     "Facts as pairs, << apple river >>, as sentences, The code of apple is river., or in\n"
                     "RULER's words, One of the special magic numbers for apple is: 1234567.");
  command.add_option("--examples", workload.task.examples, "N",
                     "Short tasks of the kind with their answers, before the prompt");
  command.add_option("--text", options->text_file, "FILE",
                     "UTF-8 text for the contexts instead of the built-in one");
  command.add_option("--tokenizer", options->tokenizer_dir, "DIR", "Folder with the tokenizer that counts");
  command.add_flag("--chat", options->chat,
                   "Each prompt is the message of a user, in the chat template of --tokenizer");
  command.add_option("-o,--output", options->output, "FILE",
                     "JSON Lines, a prompt each (default: standard output)");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.callback([command, options] { run_workload_command(command, *options); });
}

}  // namespace kvsim::tools
