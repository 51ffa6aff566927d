// Workloads of LLMServingSim (casys-kaist; ISPASS 2026): requests, and sessions of an agent whose calls each
// begin when the one before has ended and its tool has answered. Token ids, where there are any, become
// chained blocks of a stated size, vLLM's 16 unless said otherwise.

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kMaxValues = std::size_t{1} << 23;
constexpr double kMostNanoseconds = 1e18;

using Tokens = std::vector<std::uint64_t>;

class LlmservingsimReader : public LineReader {
 public:
  void read(std::string_view line, TraceBuilder& out) override {
    const boost::json::value value = parse_strict_json(line, out.where(), kMaxValues);
    const JsonObject object(value, out.where());
    require(object, "arrival_time_ns");
    Request request{.time_s = object.number("arrival_time_ns", 0, kMostNanoseconds) / 1e9};
    const std::string session = object.has("session_id") ? name_of(object.at("session_id"), out) : "";
    if (!object.has("sub_requests")) {
      if (!session.empty()) out.continue_session(request, session);
      add(object, request, out);
      return;
    }
    if (!session.empty()) request.session = out.session(session);
    if (request.session == kNone) request.session = out.session("line " + std::to_string(lines_));
    ++lines_;
    request.turn = 1;
    for (const boost::json::value& part : object.array("sub_requests")) {
      const JsonObject call(part, out.where() + " call " + std::to_string(request.turn));
      request.parent = add(call, request, out);
      request.after_parent = true;
      request.time_s = call.number_or("tool_duration_ns", 0, kMostNanoseconds, 0) / 1e9;
      ++request.turn;
    }
  }

 private:
  static void require(const JsonObject& object, std::string_view field) {
    if (object.has(field)) return;
    std::vector<std::string> names;
    for (const auto& member : object.raw()) names.emplace_back(member.key().data(), member.key().size());
    const std::vector<std::string> near = nearest(field, names, 1);
    input_error("has no field " + in_quotes(field), object.where(),
                near.empty() ? "" : "Is " + in_quotes(near.front()) + " meant?");
  }

  static std::string name_of(const boost::json::value& value, const TraceBuilder& out) {
    if (value.is_string()) return {value.get_string().data(), value.get_string().size()};
    return std::to_string(json_integer(value, out.where() + " session_id", 0, UINT64_MAX));
  }

  std::uint32_t add(const JsonObject& call, const Request& request, TraceBuilder& out) {
    require(call, "input_toks");
    require(call, "output_toks");
    const std::uint64_t prompt = call.integer("input_toks", 0, kMostTokens);
    const std::uint64_t generated = call.integer("output_toks", 0, kMostTokens);
    if (!read_tokens(call, "input_tok_ids", prompt, tokens_))
      return out.add(request, prompt, generated, nullptr);
    const bool answered = read_tokens(call, "output_tok_ids", generated, output_);
    return out.add_tokens(request, tokens_, generated, answered ? &output_ : nullptr);
  }

  static bool read_tokens(const JsonObject& call, std::string_view field, std::uint64_t count, Tokens& out) {
    out.clear();
    if (!call.has(field)) return false;
    for (const boost::json::value& token : call.array(field))
      out.push_back(json_integer(token, call.path(field), 0, UINT32_MAX));
    if (out.size() != count)
      input_error("has " + std::to_string(out.size()) + " ids in " + in_quotes(field) + " for " +
                      std::to_string(count) + " tokens",
                  call.where());
    return true;
  }

  Tokens tokens_, output_;
  std::uint64_t lines_ = 1;
};

}  // namespace

LineFormat llmservingsim_format() {
  LineFormat format;
  format.said = {"llmservingsim",
                 "JSON Lines with arrival_time_ns and input_toks, output_toks, or with sub_requests", true};
  format.defaults = {.block_tokens = 16, .tail = Tail::missing};
  format.shown_by = {{"input_toks"}, {"sub_requests"}};
  format.reader = made<LlmservingsimReader>;
  return format;
}

}  // namespace kvsim::requests
