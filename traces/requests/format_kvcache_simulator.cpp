// The JSON Lines of kvcache-simulator (kvcache-ai, 2026): Mooncake's without a time, blocks of any size. Its
// requests follow each other in the order of the file; here they all arrive at 0.
#include "sim/base/error.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

class KvcacheSimulatorReader : public LineReader {
 public:
  enum Column : std::size_t { kBlock, kPrompt, kGenerated, kIds, kWeights };

  void read(std::string_view line, TraceBuilder& out) override {
    fields_.parse(line, [&] { return out.where(); });
    if (fields_.has(kBlock)) out.declare_block_tokens(fields_.whole(kBlock));
    if (const auto* weights = fields_.list(kWeights)) check_weights(*weights, out);
    out.add({}, fields_.whole(kPrompt), fields_.whole_or(kGenerated, 0), fields_.list(kIds));
  }

 private:
  /// Blocks may have weights of their own there; here all but the last are whole.
  void check_weights(const std::vector<std::uint64_t>& weights, const TraceBuilder& out) const {
    const std::uint64_t size = out.block_tokens();
    std::uint64_t left = fields_.whole(kPrompt);
    bool sound = weights.size() == fields_.list(kIds)->size();
    for (const std::uint64_t weight : weights) {
      sound = sound && weight > 0 && weight == std::min(size, left);
      left -= std::min(left, weight);
    }
    if (!sound)
      input_error("block_tokens are not those of whole blocks and a rest", out.where(),
                  "Blocks of many sizes cannot be read: leave block_tokens out where they are regular.");
  }

  JsonFields fields_{{{"block_size", FieldKind::whole, false},
                      {"input_length", FieldKind::whole, true},
                      {"output_length", FieldKind::whole, false},
                      {"hash_ids", FieldKind::ids, true},
                      {"block_tokens", FieldKind::wholes, false}}};
};

}  // namespace

LineFormat kvcache_simulator_format() {
  LineFormat format;
  format.said = {"kvcache-simulator", "JSON Lines with block_size, input_length, hash_ids, in file order",
                 true};
  format.defaults = {.rising = false};
  format.shown_by = {{"hash_ids", "input_length"}};
  format.lacks = {"timestamp"};
  format.reader = made<KvcacheSimulatorReader>;
  return format;
}

}  // namespace kvsim::requests
