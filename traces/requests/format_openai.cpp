// The input files of OpenAI's Batch API, which vLLM and others take, too: a request to chat/completions or
// completions in each line. They say no times, so that all arrive at 0, and of answers how long they may get.
#include <boost/json/serialize.hpp>

#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kMostBatchValues = 1'000'000;

class OpenAiReader : public LineReader {
 public:
  explicit OpenAiReader(const ReadOptions& options) : options_(options) {}

  void read(std::string_view line, TraceBuilder& out) override {
    const boost::json::value value = parse_strict_json(line, out.where(), kMostBatchValues);
    const JsonObject body = JsonObject(value, out.where()).object("body");
    if (!options_.encode)
      usage_error("has texts, whose tokens only a tokenizer knows", out.where(), "Add --tokenizer MODEL.");
    const bool chat = body.has("messages");
    const std::vector<std::int32_t> tokens = options_.encode(
        chat ? boost::json::serialize(body.array("messages")) : body.text("prompt"), chat, out.where());
    std::vector<std::uint64_t> prompt(tokens.begin(), tokens.end());
    const char* most = body.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    out.add_tokens({}, prompt, body.integer_or(most, 0, kMostTokens, 0), nullptr);
  }

 private:
  const ReadOptions& options_;
};

}  // namespace

LineFormat openai_format() {
  LineFormat format;
  format.said = {"openai",
                 "Files for OpenAI's Batch API, with --tokenizer: body.messages or body.prompt, and "
                 "body.max_tokens, which counts as generated; all arrive at once",
                 true};
  format.defaults = {.block_tokens = 16, .tail = Tail::missing, .rising = false};
  format.shown_by = {{"custom_id", "body"}};
  format.reader = [](const ReadOptions& options) { return std::make_unique<OpenAiReader>(options); };
  return format;
}

}  // namespace kvsim::requests
