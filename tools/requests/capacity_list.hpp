#pragma once
/// Capacities of prefix caches as people write them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/cache_capacity.hpp"

namespace kvsim::tools {

/// `8K` tokens, `64GiB`, `1K..1M:x2`, `16GiB..1TiB:x4`, and commas between them; ascending, each once, in
/// whole blocks. `token_bytes`: what a token takes; none: bytes are refused. Throws Error(usage), also for
/// less than a block and more than 1,000 capacities.
std::vector<analysis::CacheCapacity> parse_capacities(const std::string& text, const std::string& option,
                                                      std::uint32_t block_tokens,
                                                      std::optional<double> token_bytes);

}  // namespace kvsim::tools
