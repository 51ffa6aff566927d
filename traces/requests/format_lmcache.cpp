// LMCache's log of lookups (lookup_hashes_*.jsonl): what the users of one's own engine asked for. Hashes are
// there for complete chunks alone, and nothing of what was generated.
#include "sim/base/rng.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

enum : std::size_t { kTime, kTokens, kChunk, kHashes, kModel };

class Reader : public LineReader {
 public:
  void read(std::string_view line, TraceBuilder& out) override {
    fields_.parse(line, [&] { return out.where(); });
    out.declare_block_tokens(fields_.whole(kChunk));
    Request request{.time_s = fields_.real(kTime)};
    if (fields_.has(kModel)) request.category = out.category(fields_.name(kModel));
    out.add(request, fields_.whole(kTokens), 0, ids_of(request.category));
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
                      {"seq_len", FieldKind::whole, true},
                      {"chunk_size", FieldKind::whole, true},
                      {"chunk_hashes", FieldKind::ids, true},
                      {"model_name", FieldKind::name, false}}};
};

}  // namespace

LineFormat lmcache_format() {
  return {
      .said = {"lmcache", "LMCache's lookup log: timestamp (Unix s), seq_len, chunk_size, chunk_hashes",
               true},
      .defaults = {.tail = Tail::missing, .from_first = true},
      .recognises =
          [](const auto& names) {
            return has_names(names, {"chunk_hashes", "seq_len"});
          },
      .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> { return std::make_unique<Reader>(); }};
}

}  // namespace kvsim::requests
