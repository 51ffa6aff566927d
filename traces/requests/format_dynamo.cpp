// NVIDIA Dynamo's request traces (DYN_REQUEST_TRACE; schema dynamo.request.trace.v1): a record when a request
// ends, hence in the order of ends. Hashes are of a block and all before it, the last block may be partial.
// Records of tools and payloads are passed over.
#include <array>
#include <map>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kMostDynamoValues = std::size_t{1} << 23;
constexpr const char* kDynamoSchema = "dynamo.request.trace.v1";
constexpr std::array kPassedOver{"tool_start", "tool_end", "tool_error", "request_payload"};

class DynamoReader : public LineReader {
 public:
  void read(std::string_view line, TraceBuilder& out) override {
    const boost::json::value value = parse_strict_json(line, out.where(), kMostDynamoValues);
    const JsonObject outer(value, out.where());
    const JsonObject record = outer.has("event") ? outer.object("event") : outer;
    if (record.has("worker_id") && record.has("event")) refuse_cache_event(out.where());
    if (const std::string schema = record.text("schema"); schema != kDynamoSchema)
      input_error("is of schema " + in_quotes(schema) + ", not " + kDynamoSchema, out.where());
    const std::string type = record.text("event_type");
    if (std::ranges::find(kPassedOver, type) != kPassedOver.end()) return;
    if (type != "request_end") input_error("is an event of unknown type " + in_quotes(type), out.where());
    add(record, out);
  }

 private:
  void add(const JsonObject& record, TraceBuilder& out) {
    const JsonObject asked = record.object("request");
    if (!asked.has("replay"))
      input_error("has no hashes of its blocks", asked.path("replay"),
                  "Dynamo writes them where it knows the size of a block of the model's cache.");
    const JsonObject replay = asked.object("replay");
    out.declare_block_tokens(replay.integer("trace_block_size", 1, UINT32_MAX));
    const std::uint64_t received = asked.integer("request_received_ms", 0, kLatest);
    Request request{.time_s = static_cast<double>(received) / 1000};
    if (asked.has("model")) request.category = out.category(asked.text("model"));
    if (record.has("agent_context")) {
      const std::string name = record.object("agent_context").text("session_id");
      // What came before the last answer of its session was whole is no turn behind it: a subagent's request.
      std::uint64_t& ended = ended_[name];
      if (received >= ended) {
        out.continue_session(request, name);
      } else {
        request.session = out.session(name);
        request.turn = 1;
      }
      ended = record.integer("event_time_unix_ms", 0, kLatest);
    }
    ids_.clear();
    for (const boost::json::value& id : replay.array("input_sequence_hashes"))
      ids_.push_back(json_integer(id, replay.path("input_sequence_hashes"), 0, UINT64_MAX));
    out.add(request, replay.integer("input_length", 0, kMostTokens),
            asked.integer_or("output_tokens", 0, kMostTokens, 0), &ids_);
  }

  static constexpr std::uint64_t kLatest = std::uint64_t{1} << 53;  // of milliseconds

  std::map<std::string, std::uint64_t> ended_;  ///< of each session
  std::vector<BlockId> ids_;
};

}  // namespace

LineFormat dynamo_format() {
  LineFormat format;
  format.said = {"dynamo", "Dynamo's request traces (DYN_REQUEST_TRACE=1): request_end with replay hashes",
                 true};
  format.defaults = {.rising = false, .by_end = true, .from_first = true};
  // Whole, or as the recorder wraps it; Dynamo's recorder of the events of caches wraps likewise.
  format.shown_by = {{"schema", "event_type"}, {"timestamp", "event"}};
  format.reader = made<DynamoReader>;
  return format;
}

}  // namespace kvsim::requests
