// kvsim capture: run a checkpoint on a prompt and record what its attention saw.
#include <cstdio>
#include <ostream>

#include "analysis/results/numbers.hpp"
#include "sim/base/number_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"
#include "tools/options/option_numbers.hpp"
#include "traces/capture/capture.hpp"

namespace kvsim::tools {
namespace {

struct CaptureOptions {
  capture::CaptureOptions capture;
  std::string engine = "kvsim", queries = "all", attention = "none", fields;
  bool quiet = false;
};

void print_phase(const char* label, std::uint64_t tokens, double seconds) {
  front_end().results() << label << tokens << (tokens == 1 ? " token" : " tokens");
  if (seconds > 0) {
    front_end().results() << " in " << analysis::rounded_text(seconds, 2) << " s ("
                          << analysis::rounded_text(static_cast<double>(tokens) / seconds, 0) << " tokens/s)";
  }
  front_end().results() << '\n';
}

void run_capture_command(CaptureOptions& options) {
  if (options.engine != "kvsim") {  // the Python package's command has taken these words before
    usage_error(options.engine + " runs in the Python package", "--engine",
                "Its kvsim takes this option, after pip install 'kvsim[llama-cpp]'.");
  }
  options.capture.queries = capture::parse_query_choice(options.queries, "--queries");
  options.capture.attention = capture::parse_row_choice(options.attention, "--attention");
  refuse_output(options.capture.output, options.capture.overwrite);
  require_ending(options.capture.output, analysis::Format::h5);
  if (options.capture.second_pass_queries && options.capture.second_pass.empty())
    usage_error("belong to a second pass", "--second-pass-queries", "Add --second-pass FILE.");
  if (!options.capture.second_pass.empty()) {
    refuse_output(options.capture.second_pass, options.capture.overwrite);
    require_ending(options.capture.second_pass, analysis::Format::h5);
  }
  options.capture.model_dir = checkpoint_at(options.capture.model_dir);
  options.capture.fields = capture::parse_line_fields(options.fields);
  if (!options.capture.prompt_file.empty()) require_prompt_file(options.capture.prompt_file);
  const capture::CaptureResult result =
      followed(options.capture.output, options.quiet,
               [&](Progress& progress) { return capture::run_capture(options.capture, progress); });
  for (const std::string& text : result.notes) front_end().note(text);
  front_end().results() << "trace      " << options.capture.output << ", " << bytes_text(result.file_bytes)
                        << '\n';
  print_phase("prompt     ", result.prompt_tokens, result.prefill_seconds);
  print_phase(options.capture.given_file.empty() ? "generated  " : "given      ", result.new_tokens,
              result.decode_seconds);
  if (result.pieces > 0)
    print_phase(("pieces     " + std::to_string(result.pieces) + " runs, ").c_str(), result.piece_tokens, 0);
  if (!result.text.empty()) front_end().results() << "text       " << result.text << '\n';
  for (const std::string& answer : result.answers) front_end().results() << "answer     " << answer << '\n';
}

}  // namespace

void add_capture_command(Command app) {
  Command command = app.add_subcommand(
      "capture", "Run a model on a prompt and record its keys, values and queries", R"(Examples:
  kvsim capture --model traces/sample/model --prompt traces/sample/prompts/needle-1000-one.txt --max-new-tokens 32 -o run.h5
  kvsim capture --model ~/models/SmolLM2-135M --prompt - --max-new-tokens 64 --queries window:512 -o run.h5 < text
  kvsim capture --model traces/sample/model --workload prompts.jsonl --item needle-1000-s1-0 --max-new-tokens 8 -o run.h5
  kvsim capture --model DIR --tokens ids.json --max-new-tokens 16 --attention window:64 --elem f32 -o exact.h5
)");
  const auto options = std::make_shared<CaptureOptions>();
  capture::CaptureOptions& capture = options->capture;
  command.add_required(
      "--model", capture.model_dir, "DIR",
      "Folder with config.json and safetensors, or a GGUF file; traces/capture/README.md\nlists the families that run");
  command.add_option(
      "--engine", options->engine, "",
      "What runs the model: kvsim | llama.cpp. The latter runs any GGUF file, where the Python\n"
      "package is installed, and has options of its own: kvsim capture --engine llama.cpp --help",
      one_of({"kvsim", "llama.cpp"}));
  Option prompt = command.add_option("--prompt", capture.prompt_file, "FILE",
                                     "UTF-8 text, taken as it is, or a workload; - is standard input");
  command
      .add_option("--tokens", capture.tokens_file, "FILE",
                  "Token ids instead of text: a JSON array, or separated by white space; nothing is added")
      .excludes(prompt);
  command
      .add_option("--workload", capture.workload_file, "FILE",
                  "Prompts as kvsim workload or benchmarks write them (.jsonl, .json, .csv); parts become\n"
                  "flags of the trace's tokens")
      .excludes(prompt)
      .excludes("--tokens");
  command.add_flag("--chat", capture.chat,
                   "Put the prompt into the model's chat template: as a user's message, or as the\n"
                   "conversation that it is, [{\"role\": \"user\", \"content\": ...}, ...]");
  command.add_option("--fields", options->fields, "LIST",
                     "Other names of its fields, such as prompt=instruction,answers=gold");
  command.add_option("--item", capture.item, "ID", "Which one of the workload, if it holds several");
  Option new_tokens = command.add_option("--max-new-tokens", capture.max_new_tokens, "N",
                                         "Generate at most this many", token_count());
  Option temperature =
      command.add_option("--temperature", capture.sampling.temperature, "T",
                         "Divides the logits before a token is drawn; 0: the likeliest token");
  command.add_option("--top-k", capture.sampling.top_k, "K",
                     "Draw from the K likeliest tokens (default: from all)");
  command.add_option("--top-p", capture.sampling.top_p, "P",
                     "Then from the fewest of them that hold this share of the probability (default: 1)");
  command.add_option("--seed", capture.sampling.seed, "S",
                     "Of the draws, of tokens and of queries (default: 0)");
  command
      .add_option("--answer-tokens", capture.given_file, "FILE",
                  "Token ids to go on with after the prompt instead of generating: another engine's answer")
      .excludes(new_tokens)
      .excludes(temperature);
  command.add_flag("--ignore-eos", capture.ignore_eos, "Generate on past an end-of-text token");
  command.add_option(
      "--queries", options->queries, "",
      "Prompt queries to store: all | window:W (the last W) | sample:K (K of the others, spread "
      "evenly) | window:W,sample:K; generated tokens always have theirs. Unless all are, column "
      "statistics are stored, too");
  command.add_flag("--column-statistics", capture.column_statistics,
                   "Store the attention that each prompt key received from all prompt queries, in sum");
  command.add_option("--attention", options->attention, "",
                     "Attention rows to store: none | window:W | full; queries and keys can recompute them");
  command.add_flag("--output-weights", capture.output_weights,
                   "Store each layer's attention output projection too, as the checkpoint has it");
  command.add_flag("--prompt-logprobs", capture.prompt_logprobs,
                   "Store how probable the model finds each token of the prompt too, by which sirllm ranks");
  command.add_option("--second-pass", capture.second_pass, "FILE",
                     "Let the model repeat the prompt, too, and write what it attends meanwhile, by which\n"
                     "kvzip(file=FILE) ranks (HDF5)");
  command.add_flag(
      "--second-pass-queries", capture.second_pass_queries,
      "Write its queries, too, which matching_pursuit(queries=FILE) and fitted_values(queries=FILE)\n"
      "match");
  command.add_flag(
      "--pieces", capture.pieces,
      "Run each document of a workload's prompt alone, too, and the prompt before an edit (its\n"
      "field before): sequences of their own, of which kvsim analyze pieces says what they are worth");
  command.add_option("--elem", capture.elem, "",
                     "Type of stored queries, keys and values, and of the cache: auto | f32 | bf16 | f16");
  command
      .add_option("--deflate", capture.deflate, "LEVEL",
                  "Level of lossless compression, 1 to 9: fewer bytes on disk, slower to write and to read",
                  between(0u, 9u))
      .default_str("");
  command.add_option("--prefill-chunk", capture.prefill_chunk, "N", "Prompt tokens per pass", token_count());
  command.add_option("--device", capture.device, "", "Where the model runs: cpu | cuda | cuda:N");
  command.add_option(
      "--compute", capture.compute, "",
      "Arithmetic: auto | f32 | bf16; auto is bf16 for a bf16 checkpoint on a CUDA device, else f32");
  add_threads(command, capture.threads, 1024);
  command.add_required("-o,--output", capture.output, "FILE", "The trace");
  command.add_flag("--overwrite", capture.overwrite, "Replace an existing trace");
  command.add_flag("--quiet", options->quiet, "No progress");
  group_options(
      command, "Generated text",
      {"--max-new-tokens", "--temperature", "--top-k", "--top-p", "--answer-tokens", "--ignore-eos"});
  group_options(command, "What is stored",
                {"--queries", "--column-statistics", "--attention", "--output-weights", "--prompt-logprobs",
                 "--second-pass", "--pieces", "--elem", "--deflate"});
  group_options(command, "Run", {"--prefill-chunk", "--device", "--compute"});
  command.callback([options] { run_capture_command(*options); });
}

}  // namespace kvsim::tools
