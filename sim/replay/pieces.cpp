#include "sim/replay/pieces.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/rotary.hpp"
#include "sim/base/workers.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::sim {
namespace {

using trace::Tensor;

void round_rows(Elem elem, std::span<float> rows) {
  if (elem == Elem::f32) return;
  std::vector<std::byte> stored(rows.size() * elem_bytes(elem));
  narrow(elem, rows.data(), rows.size(), stored.data());
  widen(elem, stored.data(), rows.size(), rows.data());
}

void place(std::span<const Piece> pieces, Tensor tensor, std::uint32_t layer, std::uint32_t head,
           trace::MemoryTrace& out) {
  const trace::Model& model = out.header().model;
  const std::size_t dim = trace::schema::tensor_dim(model, tensor);
  const std::span<float> to = out.rows(tensor, layer, head);
  std::ranges::fill(to, std::numeric_limits<float>::quiet_NaN());
  for (const Piece& piece : pieces) {
    const std::uint64_t n = piece.end - piece.begin;
    const std::span<float> rows = to.subspan(piece.begin * dim, n * dim);
    piece.alone->read(tensor, layer, head, piece.lead, n, rows);
    if (tensor == Tensor::value || piece.begin == piece.lead) continue;
    unrotate(model.rotary(layer), piece.lead, dim, rows);
    rotate(model.rotary(layer), piece.begin, dim, rows);
    round_rows(out.header().elem, rows);
  }
}

/// Calls visit(tensor, layer, head) for each that a trace of the model holds.
template <class Visit>
void for_each_head(const trace::Model& model, std::uint32_t layer, Visit visit) {
  for (std::uint32_t head = 0; head < model.n_q_heads; ++head) visit(Tensor::query, layer, head);
  for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
    visit(Tensor::key, layer, head);
    visit(Tensor::value, layer, head);
  }
}

std::vector<std::int32_t> ids_of(const trace::Sequence& sequence) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t position = 0; position < sequence.prompt_length(); ++position)
    ids.push_back(sequence.source().header().token_id[sequence.token(position)]);
  return ids;
}

/// The prompt of a sequence as a trace of its own.
trace::MemoryTrace copy_of(const trace::Sequence& sequence) {
  if (sequence.model().values_in_keys)
    usage_error("is of latent attention, whose values are parts of its keys", sequence.source().name(),
                "Pieces are taken from other models.");
  if (sequence.first_query() > 0)
    usage_error("does not hold all queries of the prompt and its pieces", sequence.source().name(),
                "Capture again with --queries all.");
  trace::Header header = trace::plain_header(sequence.model(), sequence.prompt_length(), 0);
  header.elem = sequence.source().header().elem;
  trace::MemoryTrace copy(std::move(header));
  for (std::uint32_t layer = 0; layer < sequence.model().n_layers; ++layer)
    for_each_head(sequence.model(), layer, [&](Tensor tensor, std::uint32_t of_layer, std::uint32_t head) {
      sequence.read(tensor, of_layer, head, 0, sequence.prompt_length(), copy.rows(tensor, of_layer, head));
    });
  return copy;
}

/// Where the tokens of a run stand in the prompt, from `from` on; behind a first token that the prompt begins
/// with, too, where they stand nowhere as they are; none: not all stand there.
std::optional<Piece> found_piece(std::span<const std::int32_t> prompt, std::span<const std::int32_t> run,
                                 std::uint64_t from) {
  for (const std::uint64_t lead : {0U, 1U}) {
    if (lead >= run.size() || (lead == 1 && run[0] != prompt[0])) break;
    const std::span<const std::int32_t> wanted = run.subspan(lead);
    const auto found = std::search(prompt.begin() + static_cast<std::ptrdiff_t>(from), prompt.end(),
                                   wanted.begin(), wanted.end());
    if (found == prompt.end()) continue;
    const auto begin = static_cast<std::uint64_t>(found - prompt.begin());
    return Piece{begin, begin + wanted.size(), nullptr, lead};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Piece> unedited_pieces(std::span<const std::int32_t> before,
                                   std::span<const std::int32_t> after) {
  if (after.empty()) return {};
  const std::uint64_t last = after.size() - 1;
  const auto begins =
      static_cast<std::uint64_t>(std::ranges::mismatch(before, after.first(last)).in1 - before.begin());
  std::uint64_t ends = 0;
  while (begins + ends < std::min<std::uint64_t>(before.size(), after.size()) &&
         before[before.size() - 1 - ends] == after[last - ends])
    ++ends;
  std::vector<Piece> out;
  if (begins > 0) out.push_back({0, begins, nullptr, 0});
  if (ends > 1) out.push_back({after.size() - ends, last, nullptr, before.size() - ends});
  return out;
}

trace::MemoryTrace place_pieces(const trace::MemoryTrace& exact, std::span<const Piece> pieces,
                                unsigned threads) {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].begin >= pieces[i].end || pieces[i].end >= exact.header().n_tokens() ||
        (i > 0 && pieces[i].begin < pieces[i - 1].end))
      bug("documents that are empty, overlap or hold the last token");
  if (exact.header().model.values_in_keys)
    usage_error(
        "a prompt is not put together for a model with latent attention, whose values are parts of its keys",
        "--prefill", "Say dense.");
  trace::MemoryTrace out = exact;
  Workers(threads).run(out.header().model.n_layers, [&](std::size_t layer) {
    for_each_head(out.header().model, static_cast<std::uint32_t>(layer),
                  [&](Tensor tensor, std::uint32_t of_layer, std::uint32_t head) {
                    place(pieces, tensor, of_layer, head, out);
                  });
  });
  return out;
}

RecordedPieces recorded_pieces(const trace::Sequence& prompt, bool edited) {
  const trace::Source& source = prompt.source();
  const trace::Header& header = source.header();
  if (prompt.token(0) != 0)
    usage_error("pieces are of the first sequence of a trace", "--sequence", "Leave --sequence out.");
  const std::vector<std::int32_t> ids = ids_of(prompt);
  const auto is_document = [&](std::uint32_t leaf) {
    constexpr std::uint8_t kDocument = 5;
    return header.segments[leaf].role == kDocument;
  };
  const bool marked = std::ranges::any_of(header.sequence_leaf, is_document);
  RecordedPieces out{copy_of(prompt), {}, {}};
  for (std::size_t number = 0; number < header.sequence_leaf.size(); ++number) {
    const bool document = is_document(header.sequence_leaf[number]);
    if (edited ? document : marked && !document) continue;
    const trace::Sequence run(source, number);
    const std::vector<std::int32_t> run_ids = ids_of(run);
    if (run_ids == ids) continue;
    if (edited) {
      out.pieces = unedited_pieces(run_ids, ids);
      out.runs.clear();
    } else {
      const std::optional<Piece> piece = found_piece(std::span(ids).first(ids.size() - 1), run_ids,
                                                     out.pieces.empty() ? 0 : out.pieces.back().end);
      if (!piece) continue;
      out.pieces.push_back(*piece);
    }
    out.runs.push_back(copy_of(run));
  }
  if (out.runs.empty())
    usage_error(std::string("holds no run of ") + (edited ? "the text before an edit" : "documents alone"),
                source.name(), "kvsim capture --pieces records it.");
  for (std::size_t i = 0; i < out.pieces.size(); ++i) out.pieces[i].alone = &out.runs[edited ? 0 : i];
  return out;
}

}  // namespace kvsim::sim
