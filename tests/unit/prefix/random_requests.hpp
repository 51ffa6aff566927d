#pragma once
/// Seeded traces with much sharing: prompts that follow a random tree, whose popular branches are taken again
/// and again.
#include <algorithm>
#include <string>

#include "sim/base/rng.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim {

struct RandomRequests {
  std::uint64_t seed = 1;
  std::size_t requests = 120, depth = 6;
  std::uint64_t branches = 3;  ///< children of a block
  std::size_t categories = 2;
};

inline requests::RequestTrace random_requests(const RandomRequests& of) {
  requests::RequestTrace trace{.format = "random", .block_tokens = 16, .hashing = requests::Hashing::content};
  for (std::size_t i = 0; i < of.categories; ++i) trace.categories.push_back("kind " + std::to_string(i));
  double time_s = 0;
  for (std::size_t r = 0; r < of.requests; ++r) {
    const auto draw = [&](std::uint64_t what) { return uniform01(combine({of.seed, r, what})); };
    requests::Request request{.line = r + 1};
    request.time_s = time_s += std::floor(draw(0) * 4) / 2;
    request.category = of.categories
                           ? static_cast<std::uint32_t>(draw(1) * static_cast<double>(of.categories))
                           : requests::kNone;
    request.priority = static_cast<std::int32_t>(draw(2) * 3);
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(1 + draw(3) * static_cast<double>(of.depth));
    for (std::uint32_t i = 0; i < request.n_blocks; ++i) {
      // The square makes the first branches popular.
      const double x = draw(10 + i);
      trace.blocks.push_back(static_cast<std::uint64_t>(x * x * static_cast<double>(of.branches)));
    }
    request.prompt_tokens = request.n_blocks * 16;
    trace.requests.push_back(request);
  }
  return trace;
}

}  // namespace kvsim
