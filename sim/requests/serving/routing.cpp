#include "sim/requests/serving/routing.hpp"

#include <algorithm>

#include "sim/base/enum_names.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::serving {
namespace {

constexpr const char* kNames[] = {"random", "hashed", "longest_prefix", "least_loaded"};

/// The same for all prompts that begin with the same blocks.
std::uint64_t key_of_blocks(const RoutingSettings& settings, std::uint32_t request,
                            const prefix::PrefixTree& tree) {
  const std::span<const prefix::Node> prompt = tree.prompt(request);
  if (prompt.empty()) return combine({settings.seed, request});
  const std::size_t last = std::min<std::size_t>(settings.hashed_blocks, prompt.size()) - 1;
  return combine({settings.seed, prompt[last]});
}

}  // namespace

const char* routing_name(Routing routing) {
  return name_in(kNames, routing);
}

Routing parse_routing(std::string_view name) {
  return parse_named<Routing>(kNames, name, "routing");
}

std::uint32_t route(const RoutingSettings& settings, std::uint32_t request, const prefix::PrefixTree* tree,
                    const std::vector<std::size_t>& unfinished, const std::vector<std::uint64_t>& found) {
  const std::size_t replicas = unfinished.size();
  if (settings.routing == Routing::random)
    return static_cast<std::uint32_t>(uniform01(combine({settings.seed, request})) *
                                      static_cast<double>(replicas));
  if (settings.routing == Routing::hashed)
    return static_cast<std::uint32_t>(key_of_blocks(settings, request, *tree) % replicas);
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < replicas; ++i) {
    if (settings.routing == Routing::longest_prefix && found[i] != found[best]) {
      if (found[i] > found[best]) best = i;
    } else if (unfinished[i] < unfinished[best]) {
      best = i;
    }
  }
  return best;
}

}  // namespace kvsim::serving
