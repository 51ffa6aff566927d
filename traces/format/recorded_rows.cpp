#include "traces/format/recorded_rows.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "traces/format/file_trace.hpp"

namespace kvsim::trace {

bool holds_queries(const Header& header) {
  return header.capture.q_policy != "none";
}

std::uint64_t first_row(const Sequence& sequence) {
  const std::vector<std::uint64_t>& rows = sequence.source().header().attention_token;
  std::uint64_t first = sequence.first_query();
  while (first > 0 && std::binary_search(rows.begin(), rows.end(), sequence.token(first - 1))) --first;
  return first;
}

void read_recorded_rows(const Sequence& sequence, std::uint32_t layer, std::uint32_t query_head,
                        std::uint64_t first, std::uint64_t n, float* out, std::uint64_t stride) {
  const auto* const file = dynamic_cast<const FileTrace*>(&sequence.source());
  if (file == nullptr) bug("attention rows of a trace that is no file", sequence.source().name());
  const AttentionRows& rows = file->attention()[layer];
  const std::vector<std::uint64_t>& tokens = file->header().attention_token;
  for (std::uint64_t position = first; position < first + n; ++position, out += stride) {
    const auto row = static_cast<std::size_t>(
        std::lower_bound(tokens.begin(), tokens.end(), sequence.token(position)) - tokens.begin());
    float* const p = out + rows.first_key[row];
    std::fill_n(out, stride, 0.0F);
    rows.read(query_head, row, p);
    float* const end = p + rows.keys(row);
    const float* const bad =
        std::find_if(p, end, [](float value) { return !(value >= 0) || !std::isfinite(value); });
    if (bad != end)
      input_error("attention of layer " + std::to_string(layer) + ", head " + std::to_string(query_head) +
                      ", position " + std::to_string(position) + " is " + std::to_string(*bad),
                  file->name(), "kvsim trace check says what else is wrong with it.");
  }
}

}  // namespace kvsim::trace
