#include "tools/requests/request_options.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/partial_file.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/front_end.hpp"
#include "traces/capture/chat_prompt.hpp"
#include "traces/model/hub_cache.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::tools {

void require_blocks(const requests::RequestTrace& trace, const std::string& file, const std::string& hint) {
  if (trace.has_blocks()) return;
  usage_error("of format " + trace.format + " does not say which tokens prompts share", file, hint);
}

std::string request_format_names() {
  std::string names;
  for (const requests::RequestFormat& format : requests::request_formats())
    names += (names.empty() ? "" : "|") + format.name;
  return names;
}

void add_request_options(Command command, RequestOptions& options) {
  const Command requests = command.in_group("Requests");
  requests.add_option("--from", options.from, request_format_names(),
                      "Format of the trace (default: as its first line looks)");
  requests.add_option("--fields", options.fields, "LIST",
                      "With --from csv or jsonl: what it calls time, prompt, output and session: "
                      "time=arrived,prompt=input");
  requests.add_option(
      "--tokenizer", options.tokenizer, "MODEL",
      "With --from jsonl and openai: the model whose tokens the texts become, by its chat template "
      "where they are messages");
  requests.add_option("--block-tokens", options.block_tokens, "TOKENS",
                      "Tokens per block, where the trace does not say it (default: as usual in its format)",
                      token_count());
  requests.add_option("--hash", options.hash, "chained|content",
                      "What an id names: a block and all before it, or its tokens alone (default: as the "
                      "format has it)",
                      hidden(one_of({"chained", "content"})));
  requests.add_option("--tail", options.tail, "partial|missing",
                      "Whether tokens behind the last whole block have an id (default: as the trace shows)",
                      hidden(one_of({"partial", "missing"})));
  requests.add_option("--generated", options.generated, "none|inferred",
                      "Blocks of generated tokens: unknown, or inferred from the next turn (default: as the "
                      "trace says)",
                      hidden(one_of({"none", "inferred"})));
  requests.add_option("--limit", options.limit, "N", "Only so many requests, the first (default: all)");
}

void add_request_file(Command command, RequestRun& run) {
  command.add_required("FILE", run.file, "", "Trace of requests, gzip or not; -: standard input");
}

void add_run_options(Command command, RequestRun& run) {
  add_request_options(command, run.reading);
  add_output_options(command, run);
  command.add_option("--threads", run.threads, "N", "Never changes a result (default: all)");
  command.add_flag("-q,--quiet", run.quiet, "No progress");
}

requests::ReadOptions read_options(const RequestOptions& options) {
  if (options.block_tokens > std::numeric_limits<std::uint32_t>::max())
    usage_error("is no size of a block", "--block-tokens " + std::to_string(options.block_tokens));
  requests::ReadOptions out{.format = options.from,
                            .block_tokens = static_cast<std::uint32_t>(options.block_tokens),
                            .limit = options.limit};
  out.fields = parse_field_names(options.fields, {"time", "prompt", "output", "session"});
  if (!out.fields.empty() && options.from != "csv" && options.from != "jsonl")
    usage_error("names the columns of one's own log", "--fields", "Add --from csv or --from jsonl.");
  if (!options.tokenizer.empty()) {
    const std::string model = model::local_checkpoint(options.tokenizer);
    const auto tokenizer = std::make_shared<const model::Tokenizer>(model::load_tokenizer(model));
    out.encode = [model, tokenizer, chat = std::optional<model::ChatTemplate>()](
                     std::string text, bool messages, const std::string& where) mutable {
      capture::WorkloadItem item{.id = where, .prompt = std::move(text)};
      if (messages) {
        if (!chat) chat.emplace(model::load_chat_template(model));
        capture::put_into_chat(item, *chat);
      }
      return capture::prompt_ids(item, *tokenizer);
    };
  }
  if (!options.hash.empty())
    out.hashing = options.hash == "chained" ? requests::Hashing::chained : requests::Hashing::content;
  if (!options.tail.empty())
    out.tail = options.tail == "partial" ? requests::Tail::partial : requests::Tail::missing;
  if (!options.generated.empty())
    out.generated = options.generated == "none" ? requests::Generated::none : requests::Generated::inferred;
  return out;
}

requests::RequestTrace read_shown(const std::string& path, requests::ReadOptions options, bool quiet) {
  return followed("reading " + path, quiet, [&](Progress& progress) {
    options.progress = &progress;
    return requests::read_requests(path, options);
  });
}

requests::RequestTrace read_shown(const RequestRun& run) {
  return read_shown(run.file, read_options(run.reading), run.quiet);
}

using requests::WrittenFormat;

void add_written_format(Command command, std::string& to) {
  command.add_option(
      "--to", to, "mooncake|bailian",
      "mooncake: arrivals, lengths, hash_ids; bailian: turns of sessions besides (default: bailian "
      "where requests wait for others to end, else mooncake)",
      hidden(one_of({"mooncake", "bailian"})));
}

void refuse_requests_output(const std::string& path, bool overwrite) {
  require_ending(path, analysis::Format::jsonl);
  refuse_output(path, overwrite);
}

void write_shown(const requests::RequestTrace& trace, const std::string& path, const std::string& to,
                 bool overwrite, bool quiet) {
  const bool waits = std::ranges::any_of(
      trace.requests, [](const requests::Request& request) { return request.after_parent; });
  const bool bailian = to.empty() ? waits : to == "bailian";
  requests::WriteOptions options{.format = bailian ? WrittenFormat::bailian : WrittenFormat::mooncake,
                                 .overwrite = overwrite};
  const std::vector<std::string> notes = requests::left_out(trace, options.format);
  {
    Progress progress;
    options.progress = &progress;
    const std::shared_ptr<void> shown = front_end().follow(progress, "writing " + path, quiet);
    requests::write_requests(trace, path, options);
  }
  if (quiet) return;
  for (const std::string& text : notes) note(text);
}

}  // namespace kvsim::tools
