#include "sim/cost/pages.hpp"

#include <bit>
#include <cmath>
#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::cost {
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
