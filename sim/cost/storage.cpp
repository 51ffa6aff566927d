#include "sim/cost/storage.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::cost {
namespace {

constexpr const char* kWhat = "stored keys and values";
/// No representation takes as many bits of all kinds for a number.
constexpr std::uint64_t kMostBits = 1024;

/// Lanes of one unit, out of `lanes`.
std::uint64_t unit_lanes(const Storage& storage, std::uint64_t lanes) {
  return storage.together ? lanes : 1;
}

policy::Ledger unit_ledger(const Storage& storage, const Model& model, std::uint64_t lanes,
                           const LaneTokens& tokens) {
  const std::uint64_t all = checked_sum(kWhat, tokens.kept, tokens.appended);
  const std::uint64_t numbers =
      checked_product(kWhat, all, lanes, checked_sum(kWhat, model.head_dim, model.stored_value_dim()));
  if (!storage.representation) return {.exact = checked_product(kWhat, numbers, storage.element_bits)};
  const std::uint64_t layers = model.cached_layers();
  checked_product(kWhat, numbers, kMostBits, layers);
  // What differs by depth counts in every layer as its mean.
  const policy::Ledger sum =
      storage.representation->ledger_of_layers({.n_lanes = lanes,
                                                .key_dim = model.head_dim,
                                                .value_dim = model.stored_value_dim(),
                                                .element_bits = storage.element_bits,
                                                .n_layers = static_cast<std::uint32_t>(layers)},
                                               tokens.kept, tokens.appended);
  const auto mean = [&](std::uint64_t bits) { return ceil_divided(bits, layers); };
  return {mean(sum.exact),   mean(sum.codes),  mean(sum.parameters), mean(sum.outliers),
          mean(sum.indices), mean(sum.tables), mean(sum.shared),     mean(sum.host)};
}

}  // namespace

policy::Ledger stored_ledger(const Storage& storage, const Model& model, std::uint64_t lanes,
                             const LaneTokens& tokens) {
  if (lanes == 0) return {};
  const std::uint64_t together = unit_lanes(storage, lanes), units = lanes / together;
  const policy::Ledger unit = unit_ledger(storage, model, together, tokens);
  const auto times = [&](std::uint64_t bits) { return checked_product(kWhat, units, bits); };
  return {times(unit.exact),   times(unit.codes),  times(unit.parameters), times(unit.outliers),
          times(unit.indices), times(unit.tables), times(unit.shared),     times(unit.host)};
}

std::uint64_t stored_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                           const LaneTokens& tokens) {
  if (lanes == 0) return 0;
  const std::uint64_t together = unit_lanes(storage, lanes);
  return checked_product(kWhat, lanes / together,
                         ceil_divided(unit_ledger(storage, model, together, tokens).bits(), 8));
}

std::uint64_t empty_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                          const LaneTokens& tokens, std::uint64_t empty) {
  if (empty == 0) return 0;
  const LaneTokens full{tokens.kept, checked_sum(kWhat, tokens.appended, empty)};
  const std::uint64_t held = stored_bytes(storage, model, lanes, tokens);
  return std::max(held, stored_bytes(storage, model, lanes, full)) - held;
}

double coded_numbers(const Storage& storage, const Model& model, const LaneTokens& tokens) {
  if (!storage.representation) return 0;
  const std::uint64_t numbers = tokens.all() * (model.head_dim + model.stored_value_dim());
  const std::uint64_t exact =
      stored_ledger(storage, model, storage.together ? model.kv_heads : 1, tokens).exact /
      (storage.together ? model.kv_heads : 1) / storage.element_bits;
  return static_cast<double>(numbers) - static_cast<double>(exact);
}

namespace {

void check_page(std::uint64_t page) {
  if (page == 0) usage_error("a page of zero tokens holds nothing", "page");
}

}  // namespace

std::uint64_t pages_of(std::uint64_t tokens, std::uint64_t page) {
  check_page(page);
  return ceil_divided(tokens, page);
}

std::uint64_t power_of_two(std::uint64_t tokens) {
  if (tokens > std::uint64_t{1} << 63) does_not_fit("a power of two");
  return std::bit_ceil(tokens);
}

double freed_page_share(double evicted, std::uint64_t page) {
  check_page(page);
  if (!(evicted >= 0 && evicted <= 1)) usage_error("not a share between 0 and 1", "evicted tokens");
  return std::pow(evicted, static_cast<double>(page));
}

std::uint64_t tokens_per_page(std::uint64_t page_bytes, std::uint64_t local_kv_heads, std::uint64_t head_dim,
                              std::uint64_t element_bytes) {
  const std::uint64_t token = checked_product("a token", local_kv_heads, head_dim, element_bytes);
  if (token == 0) usage_error("a token without heads, components or bytes", "tokens per page");
  if (token > page_bytes) {
    usage_error(
        "a token of " + std::to_string(token) + " bytes does not fit a page of " + std::to_string(page_bytes),
        "tokens per page");
  }
  return page_bytes / token;
}

}  // namespace kvsim::cost
