#include "policies/parts/codes/row_codec.hpp"

#include <string>

#include "sim/base/error.hpp"

namespace kvsim::policy {

void check_blocks(std::size_t block, const CacheUnit& unit, std::string_view where) {
  for (const int dim : {unit.head_dim, unit.value_dim})
    if (static_cast<std::size_t>(dim) % block != 0)
      usage_error(
          "blocks of " + std::to_string(block) + " numbers do not divide a vector of " + std::to_string(dim),
          std::string(where), "Engines do not offer the format for such heads.");
}

}  // namespace kvsim::policy
