#pragma once
/// Which of several replicas a request goes to.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::serving {

class Engine;

enum class Routing {
  random,          ///< each as likely, by the seed
  hashed,          ///< by the prompt's first blocks: who shares them meets
  longest_prefix,  ///< where most of the prompt is found; of equals the least loaded
  least_loaded,    ///< where the fewest requests have not ended; of equals the first
};
const char* routing_name(Routing routing);
/// Throws Error(usage) with the nearest names.
Routing parse_routing(std::string_view name);

struct RoutingSettings {
  Routing routing = Routing::least_loaded;
  std::uint64_t seed = 0;
  std::uint32_t hashed_blocks = 1;  ///< of the prompt, at most
};

/// Chooses a replica for a request that arrives. `found`: tokens of its prompt that each replica has, empty
/// where nobody asked. `tree`: needed by `hashed` alone.
std::uint32_t route(const RoutingSettings& settings, std::uint32_t request, const prefix::PrefixTree* tree,
                    const std::vector<std::size_t>& unfinished, const std::vector<std::uint64_t>& found);

}  // namespace kvsim::serving
