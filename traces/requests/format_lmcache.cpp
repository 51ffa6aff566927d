// LMCache's logs of lookups: what the users of one's own engine asked for. In lookup_hashes_*.jsonl hashes
// are there for complete chunks alone, beside the lengths of prompts and chunks; chunk_hashes_*.jsonl has
// neither length, and prompts count as so many whole chunks. Nothing is known of what was generated.
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

class LmcacheReader : public LineReader {
 public:
  enum Column : std::size_t { kTime, kTokens, kChunk, kHashes, kModel };

  void read(std::string_view line, TraceBuilder& out) override {
    fields_.parse(line, [&] { return out.where(); });
    if (fields_.has(kChunk))
      out.declare_block_tokens(fields_.whole(kChunk));
    else if (out.block_tokens() == 0)
      input_error("chunk_hashes without chunk_size: it does not say how many tokens a chunk has", out.where(),
                  "Say it, as LMCache was configured: --block-tokens 256.");
    Request request{.time_s = fields_.real(kTime)};
    if (fields_.has(kModel)) request.category = out.category(fields_.name(kModel));
    const std::vector<BlockId>* ids = ids_of(request.category);
    out.add(request, fields_.whole_or(kTokens, ids->size() * out.block_tokens()), 0, ids);
  }

 private:
  /// Hashes name tokens, whichever model they are for, and models share nothing: those of a log's second and
  /// later models get ids of their own.
  const std::vector<BlockId>* ids_of(std::uint32_t model) {
    const std::vector<std::uint64_t>* hashes = fields_.list(kHashes);
    if (model == kNone || model == 0) return hashes;
    ids_.clear();
    for (const std::uint64_t hash : *hashes) ids_.push_back(combine({model, hash}));
    return &ids_;
  }

  std::vector<BlockId> ids_;
  JsonFields fields_{{{"timestamp", FieldKind::real, true},
                      {"seq_len", FieldKind::whole, false},
                      {"chunk_size", FieldKind::whole, false},
                      {"chunk_hashes", FieldKind::ids, true},
                      {"model_name", FieldKind::name, false}}};
};

}  // namespace

LineFormat lmcache_format() {
  LineFormat format;
  format.said = {"lmcache",
                 "LMCache's lookup logs: timestamp (Unix s), chunk_hashes, and seq_len, chunk_size or "
                 "--block-tokens",
                 true};
  format.defaults = {.tail = Tail::missing, .from_first = true};
  format.shown_by = {{"timestamp", "chunk_hashes"}};
  format.reader = made<LmcacheReader>;
  return format;
}

}  // namespace kvsim::requests
