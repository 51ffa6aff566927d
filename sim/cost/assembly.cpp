#include "sim/cost/assembly.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/tier_loading.hpp"

namespace kvsim::cost {

AssemblyTime assembly_time(const Model& model, const Machine& machine, const Serving& serving,
                           double computed, std::optional<Tier> from) {
  if (!(computed >= 0 && computed <= 1)) usage_error("is a share from 0 to 1", "computed");
  if (from && machine.link(*from).bandwidth <= 0)
    usage_error("has no link to " + std::string(tier_name(*from)), "machine " + machine.name,
                "Say where documents lie.");
  AssemblyTime out;
  const auto tokens = static_cast<double>(serving.prompt);
  out.computed = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(computed * tokens)));
  const std::uint64_t others = serving.prompt - out.computed;
  out.bytes = full_cache_bytes(model, serving.layout, others, serving.batch) / serving.tensor_parallel;
  out.compute = pass_time(model, machine, serving, out.computed, others / 2, true).seconds();
  if (from && others > 0) {
    TierLinks tiers{.links = {machine.host, machine.ssd}};
    tiers.token_bytes[*from] =
        static_cast<double>(out.bytes) / (static_cast<double>(others) * static_cast<double>(serving.batch));
    PerTier<std::uint64_t> loaded;
    loaded[*from] = others * serving.batch;
    out.load = loading_seconds(loading(tiers, loaded));
  }
  out.first_token =
      std::max(out.compute, out.load) + std::min(out.compute, out.load) / static_cast<double>(model.layers);
  return out;
}

}  // namespace kvsim::cost
