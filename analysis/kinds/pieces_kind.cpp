// How far a prompt that is put together of recorded runs is from its own run.
#include "analysis/kinds/kind.hpp"
#include "sim/replay/pieces.hpp"

namespace kvsim::analysis {
namespace {

/// Tokens that no piece covers have the keys and values of the prompt's own run.
trace::MemoryTrace placed(const sim::RecordedPieces& recorded, unsigned threads) {
  trace::MemoryTrace out = sim::place_pieces(recorded.whole, recorded.pieces, threads);
  const trace::Model& model = out.header().model;
  const auto fill = [&](trace::Tensor tensor, std::uint32_t layer, std::uint32_t head, std::size_t dim) {
    const std::span<float> rows = out.rows(tensor, layer, head);
    std::uint64_t at = 0;
    const auto fill_to = [&](std::uint64_t end) {
      recorded.whole.read(tensor, layer, head, at, end - at, rows.subspan(at * dim, (end - at) * dim));
    };
    for (const sim::Piece& piece : recorded.pieces) {
      fill_to(piece.begin);
      at = piece.end;
    }
    fill_to(out.header().n_tokens());
  };
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      fill(trace::Tensor::key, layer, head, model.head_dim);
      fill(trace::Tensor::value, layer, head, model.v_head_dim);
    }
  return out;
}

std::vector<std::vector<Value>> measure_pieces(const Measurement& of) {
  const sim::RecordedPieces recorded = sim::recorded_pieces(of.sequence, of.settings.is("source", "before"));
  std::vector<std::vector<Value>> rows;
  for (const sim::SeamError& error :
       sim::seam_errors(placed(recorded, of.threads), recorded.whole, recorded.pieces, of.threads))
    rows.push_back({of.trace, std::uint64_t{error.layer}, error.from, error.to, error.tokens, error.key,
                    error.value, error.attention, error.output});
  return rows;
}

}  // namespace

Kind pieces_kind() {
  return {.name = "pieces",
          .summary = "How far documents' own keys and values are from the prompt's",
          .source = "CacheBlend (Yao et al.), deviations; PIE (He et al.)",
          .settings = {{.name = "source",
                        .type = ParamType::choice,
                        .fallback = "documents",
                        .choices = {"documents", "before"},
                        .help = "Runs of documents alone, or the one before an edit"}},
          .columns =
              {
                  {"trace", "", "trace file, as given"},
                  {"layer", "", "layer"},
                  {"distance", "tokens", "from where a token's piece begins, at least"},
                  {"distance_end", "tokens", "below which it is"},
                  {"tokens", "tokens", "that stand so, over which the others are means"},
                  {"key_l2", "share", "|k' - k| / |k| of keys, all heads together; k of the prompt's run"},
                  {"value_l2", "share", "|v' - v| / |v| of values"},
                  {"attention_moved", "share",
                   "of what the prompt's query attends, that which falls on other keys; mean over heads"},
                  {"output_l2", "share", "|o' - o| / |o| of what that query reads, all heads together"},
              },
          .notes =
              {"Keys are rotated to where a piece stands; nothing of it is computed again, and what no piece "
               "covers is exact."},
          .measure = measure_pieces};
}

}  // namespace kvsim::analysis
