#include "tools/requests/request_options.hpp"

#include <memory>

#include "sim/base/error.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/front_end.hpp"
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
  const auto add = [&](Option option) { return option.group("Requests"); };
  add(command.add_option("--from", options.from, "Format of the trace (default: as its first line looks)"))
      .type_name(request_format_names());
  add(command.add_option("--fields", options.fields,
                         "With --from csv or jsonl: what it calls time, prompt, output and session: "
                         "time=arrived,prompt=input"))
      .type_name("LIST");
  add(command.add_option("--tokenizer", options.tokenizer,
                         "With --from jsonl: the model whose tokens the texts become"))
      .type_name("MODEL");
  add(command.add_option(
          "--block-tokens", options.block_tokens,
          "Tokens per block, where the trace does not say it (default: as usual in its format)"))
      .transform(token_count())
      .type_name("TOKENS");
  add(command.add_option("--hash", options.hash,
                         "What an id names: a block and all before it, or its tokens alone (default: as the "
                         "format has it)"))
      .check(hidden(one_of({"chained", "content"})))
      .type_name("chained|content");
  add(command.add_option(
          "--tail", options.tail,
          "Whether tokens behind the last whole block have an id (default: as the trace shows)"))
      .check(hidden(one_of({"partial", "missing"})))
      .type_name("partial|missing");
  add(command.add_option(
          "--generated", options.generated,
          "Blocks of generated tokens: unknown, or inferred from the next turn (default: as the "
          "trace says)"))
      .check(hidden(one_of({"none", "inferred"})))
      .type_name("none|inferred");
  add(command.add_option("--limit", options.limit, "Only so many requests, the first (default: all)"))
      .check(whole_number())
      .type_name("N");
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
    const auto tokenizer = std::make_shared<const model::Tokenizer>(
        model::load_tokenizer(model::local_checkpoint(options.tokenizer)));
    out.encode = [tokenizer](std::string_view text) { return tokenizer->encode(text); };
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
  Progress progress;
  options.progress = &progress;
  const std::shared_ptr<void> shown = front_end().follow(progress, "reading " + path, quiet);
  return requests::read_requests(path, options);
}

}  // namespace kvsim::tools
