// Mooncake's JSON Lines (Qin et al., FAST 2025; kvcache-ai/Mooncake, FAST25-release/traces): what most tools
// exchange. AIPerf and guidellm read the same without hash_ids; block_size is a field of kvcache-simulator.
#include "sim/base/error.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

class MooncakeReader : public LineReader {
 public:
  enum Column : std::size_t { kTime, kPrompt, kGenerated, kIds, kBlock, kSession };

  void read(std::string_view line, TraceBuilder& out) override {
    fields_.parse(line, [&] { return out.where(); });
    if (fields_.has(kSession))
      input_error(
          "has a session_id: turns of AIPerf's sessions have new text alone", out.where(),
          "Here every line has its whole prompt; format bailian says which lines are turns of a session.");
    if (fields_.has(kBlock)) out.declare_block_tokens(fields_.whole(kBlock));
    out.add({.time_s = fields_.real(kTime) / 1000}, fields_.whole(kPrompt), fields_.whole_or(kGenerated, 0),
            fields_.list(kIds));
  }

 private:
  JsonFields fields_{{{"timestamp", FieldKind::real, true},
                      {"input_length", FieldKind::whole, true},
                      {"output_length", FieldKind::whole, false},
                      {"hash_ids", FieldKind::ids, false},
                      {"block_size", FieldKind::whole, false},
                      {"session_id", FieldKind::name, false}}};
};

}  // namespace

LineFormat mooncake_format() {
  LineFormat format;
  format.said = {"mooncake",
                 "JSON Lines with timestamp (ms), input_length, output_length, hash_ids of 512 tokens", true};
  format.defaults = {.block_tokens = 512};
  format.shown_by = {{"timestamp", "input_length"}};
  format.reader = made<MooncakeReader>;
  return format;
}

}  // namespace kvsim::requests
