#include "sim/replay/pieces.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/attention/attention_rows.hpp"
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

namespace {

using trace::Tensor;

/// |x' - x| / |x| of numbers that come in parts.
struct Distance {
  double difference = 0, norm = 0;
  void add(std::span<const float> other, std::span<const float> own) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      const double y = static_cast<double>(own[i]), x = static_cast<double>(other[i]) - y;
      difference += x * x;
      norm += y * y;
    }
  }
  double relative() const { return norm > 0 ? std::sqrt(difference / norm) : difference > 0 ? 1 : 0; }
};

/// One token in one layer.
struct TokenError {
  Distance key, value, output;
  double attention = 0;
};

std::vector<float> rows_of(const trace::MemoryTrace& trace, Tensor tensor, std::uint32_t layer,
                           std::uint32_t head) {
  const std::size_t dim = trace::schema::tensor_dim(trace.header().model, tensor);
  std::vector<float> out(trace.header().n_tokens() * dim);
  trace.read(tensor, layer, head, 0, trace.header().n_tokens(), out);
  return out;
}

/// Of the tokens of some pieces in one layer, in their order.
std::vector<TokenError> layer_errors(const trace::MemoryTrace& assembled, const trace::MemoryTrace& whole,
                                     std::span<const Piece> pieces, std::uint32_t layer) {
  constexpr std::uint64_t kRows = 64;
  const trace::Model& model = whole.header().model;
  const std::size_t dim = model.head_dim, value_dim = model.v_head_dim;
  const std::uint32_t group = model.n_q_heads / model.n_kv_heads;
  std::vector<TokenError> out;
  for (const Piece& piece : pieces) out.resize(out.size() + piece.end - piece.begin);
  std::vector<float> weights, outputs;
  for (std::uint32_t lane = 0; lane < model.n_kv_heads; ++lane) {
    const std::vector<float> keys[] = {rows_of(assembled, Tensor::key, layer, lane),
                                       rows_of(whole, Tensor::key, layer, lane)};
    const std::vector<float> values[] = {rows_of(assembled, Tensor::value, layer, lane),
                                         rows_of(whole, Tensor::value, layer, lane)};
    const KeyPanels panels[] = {KeyPanels({keys[0].data(), keys[0].size() / dim, dim, dim}),
                                KeyPanels({keys[1].data(), keys[1].size() / dim, dim, dim})};
    for (std::uint32_t head = lane * group; head < (lane + 1) * group; ++head) {
      const std::vector<float> queries = rows_of(whole, Tensor::query, layer, head);
      TokenError* error = out.data();
      for (const Piece& piece : pieces)
        for (std::uint64_t first = piece.begin; first < piece.end; first += kRows) {
          const std::uint64_t n = std::min(kRows, piece.end - first), seen = first + n;
          weights.resize(2 * n * seen);
          outputs.resize(2 * n * value_dim);
          for (const std::size_t side : {0U, 1U}) {
            float* of_side = weights.data() + side * n * seen;
            attention_rows(attention_shape(model, layer, head), {queries.data() + first * dim, n, dim, dim},
                           first, panels[side], of_side, seen);
            multiply({of_side, n, seen, seen}, {values[side].data(), seen, value_dim, value_dim},
                     outputs.data() + side * n * value_dim);
          }
          for (std::uint64_t row = 0; row < n; ++row, ++error) {
            const auto part = [](std::span<const float> of, std::uint64_t at, std::size_t width) {
              return of.subspan(at * width, width);
            };
            if (head == lane * group) {
              error->key.add(part(keys[0], first + row, dim), part(keys[1], first + row, dim));
              error->value.add(part(values[0], first + row, value_dim),
                               part(values[1], first + row, value_dim));
            }
            error->output.add(part(outputs, row, value_dim), part(outputs, n + row, value_dim));
            double moved = 0;
            for (std::uint64_t key = 0; key < seen; ++key)
              moved += std::abs(static_cast<double>(weights[row * seen + key]) -
                                static_cast<double>(weights[(n + row) * seen + key]));
            error->attention += moved / 2 / model.n_q_heads;
          }
        }
    }
  }
  return out;
}

}  // namespace

std::vector<SeamError> seam_errors(const trace::MemoryTrace& assembled, const trace::MemoryTrace& whole,
                                   std::span<const Piece> pieces, unsigned threads) {
  std::vector<Piece> behind_seams;
  std::ranges::copy_if(pieces, std::back_inserter(behind_seams),
                       [](const Piece& piece) { return piece.begin > 0; });
  const std::uint32_t layers = whole.header().model.n_layers;
  std::vector<std::vector<SeamError>> of_layer(layers);
  Workers(threads).run(layers, [&](std::size_t number) {
    const auto layer = static_cast<std::uint32_t>(number);
    std::vector<SeamError> sums;
    const std::vector<TokenError> errors = layer_errors(assembled, whole, behind_seams, layer);
    auto error = errors.begin();
    for (const Piece& piece : behind_seams)
      for (std::uint64_t distance = 0; distance < piece.end - piece.begin; ++distance, ++error) {
        const auto place = static_cast<std::size_t>(std::bit_width(distance));
        if (sums.size() <= place) sums.resize(place + 1);
        SeamError& sum = sums[place];
        ++sum.tokens;
        sum.key += error->key.relative();
        sum.value += error->value.relative();
        sum.attention += error->attention;
        sum.output += error->output.relative();
      }
    for (std::size_t place = 0; place < sums.size(); ++place) {
      SeamError& mean = sums[place];
      mean.layer = layer;
      mean.from = place == 0 ? 0 : std::uint64_t{1} << (place - 1);
      mean.to = std::uint64_t{1} << place;
      for (double* one : {&mean.key, &mean.value, &mean.attention, &mean.output})
        *one /= static_cast<double>(mean.tokens);
    }
    of_layer[number] = std::move(sums);
  });
  std::vector<SeamError> out;
  for (const std::vector<SeamError>& layer : of_layer) out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

}  // namespace kvsim::sim
