#include "policies/parts/codes/coding_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy {

CodeOps scalar_code_ops(const ScalarCode& code) {
  if (code.exact()) return {};
  const double packing = code.bits < 8 ? 1 : 0;
  if (code.remainder >
      0) {  // the rest, over its unit, clipped twice, rounded, packed; taken out, times, plus
    ScalarCode first = code;
    first.remainder = 0;
    const CodeOps ops = scalar_code_ops(first);
    return {ops.make + 6, ops.read + 3};
  }
  switch (code.kind) {
    case ScalarKind::offset:  // two comparisons, minus the least, over the scale, rounded; times, plus
      return {5 + packing, 3 + packing};
    case ScalarKind::integer:  // two comparisons, over the scale, rounded, plus zero, clamped; minus, times
      return {6 + packing, 3 + packing};
    case ScalarKind::absmax:  // one comparison, over the scale, rounded; times
      return {3 + packing, 2 + packing};
  }
  return {};
}

Cost coding_cost(const CostShape& shape, const CodeOps& keys, const CodeOps& values, Coding coding,
                 double keys_every, double values_every) {
  const double dims = real(shape.head_dim + shape.value_dim);
  Cost out;
  out.read_number.ops = (keys.read * real(shape.head_dim) + values.read * real(shape.value_dim)) / dims;
  const auto coded = [&](const CodeOps& ops, Work (*over)(const CostShape&, std::size_t, double),
                         double every) {
    if (ops.make == 0) return;
    Work prompt = over(shape, std::min(shape.prompt, shape.budget), ops.make),
         token = over(shape, 1, ops.make);
    token.launches = 1 / every;
    if (coding == Coding::appending)
      for (Work* work : {&prompt, &token}) work->bytes = work->launches = 0;
    out.prompt = out.prompt + prompt;
    out.step = out.step + token;
  };
  coded(keys, over_keys, keys_every);
  coded(values, over_values, values_every);
  return out;
}

namespace {

using Counts = std::array<std::size_t, 256>;

Counts counts_of(std::span<const std::int8_t> symbols) {
  Counts out{};
  for (const std::int8_t symbol : symbols) ++out[static_cast<std::uint8_t>(symbol)];
  return out;
}

}  // namespace

std::uint64_t entropy_coded_bytes(std::span<const std::int8_t> symbols, std::size_t run) {
  const Counts all = counts_of(symbols);
  std::uint64_t bytes = 0;
  for (std::size_t first = 0; first < symbols.size(); first += run) {
    const Counts of_run = counts_of(symbols.subspan(first, std::min(run, symbols.size() - first)));
    double bits = 0;
    for (std::size_t s = 0; s < all.size(); ++s)
      if (of_run[s] > 0)
        bits += static_cast<double>(of_run[s]) *
                std::log2(static_cast<double>(symbols.size()) / static_cast<double>(all[s]));
    // Rounding of the sum does not make a byte.
    bytes += static_cast<std::uint64_t>(std::ceil(bits / 8 - 1e-9));
  }
  return bytes;
}

}  // namespace kvsim::policy
