#include "tests/unit/policies/allocation_feeder.hpp"

#include <algorithm>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test {
namespace {

Run lane_of(const Run& layer, int lane) {
  Run out = layer;
  out.unit = layer.unit.lane(lane);
  const auto group = static_cast<std::ptrdiff_t>(layer.unit.group);
  const auto heads = [&](const auto& all) {
    return std::vector(all.begin() + lane * group, all.begin() + (lane + 1) * group);
  };
  out.rows = heads(layer.rows);
  out.queries = heads(layer.queries);
  out.output_weights = heads(layer.output_weights);
  out.keys = {layer.keys[static_cast<std::size_t>(lane)]};
  out.values = {layer.values[static_cast<std::size_t>(lane)]};
  return out;
}

/// Squares the rows `times` times, which concentrates attention on fewer positions.
void sharpen(Run& run, int times) {
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t i = 0; times > 0 && i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        for (int k = 0; k < times; ++k) run.p(head, i, j) *= run.p(head, i, j);
        sum += run.p(head, i, j);
      }
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  }
}

std::vector<double> scores_of(const Part& part, const Run& unit) {
  const auto eviction = part.make_eviction(unit.unit);
  feed_prompt(*eviction, unit);
  return {eviction->scores().begin(), eviction->scores().end()};
}

}  // namespace

Layers random_layers(std::size_t n_layers, const Shape& shape, std::uint64_t seed, int levels) {
  Layers out;
  for (std::size_t layer = 0; layer < n_layers; ++layer) {
    Run& run = out.emplace_back(random_run(shape, combine({seed, layer}), levels));
    run.unit.layer = static_cast<int>(layer);
    run.unit.n_layers = static_cast<int>(n_layers);
    sharpen(run, static_cast<int>(layer % 3));
  }
  return out;
}

AllocationRequest measured_request(const Composition& composition, const Layers& layers, std::size_t budget) {
  AllocationRequest request{.n_layers = layers.size(),
                            .n_kv_heads = static_cast<std::size_t>(layers[0].unit.n_lanes),
                            .prompt = layers[0].prompt,
                            .budget = budget,
                            .floor = composition.floor(),
                            .shared = composition.layer_unit()};
  request.protection = composition.eviction.protection();
  const Part& part = composition.allocation;
  const auto allocation = part.make_allocation();
  for (const Run& layer : layers) {
    for (int lane = 0; lane < layer.unit.n_lanes; ++lane) {
      const Run run = lane_of(layer, lane);
      if (const auto profile = allocation->profile(run.unit)) {
        feed_prompt(*profile, run);
        request.profiles.push_back(profile->values());
      }
      if (part.spec->uses_scores())
        request.scores.push_back(scores_of(composition.eviction, request.shared ? layer : run));
    }
  }
  return request;
}

Tokens allocate(const Composition& composition, const AllocationRequest& request) {
  return composition.allocation.make_allocation()->allocate(request);
}

Tokens allocate(const std::string& allocation, const AllocationRequest& request) {
  return allocate(parse_composition("h2o+" + allocation, builtin()), request);
}

std::size_t total(const Tokens& tokens, std::size_t prompt) {
  std::size_t sum = 0;
  for (const std::size_t n : tokens) sum += n == kNeverEvict ? prompt : n;
  return sum;
}

}  // namespace kvsim::policy::test
