#include "sim/cost/prompt_shortcuts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
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

namespace {

double flops_of(const PassTime& pass) {
  return std::accumulate(pass.ops.begin(), pass.ops.end(), 0.0,
                         [](double sum, const OpTime& op) { return sum + op.flops; });
}

}  // namespace

PredictionTime prediction_time(const Model& model, const Serving& serving, const Model& small,
                               const Serving& small_serving, const Machine& machine) {
  for (const Model* each : {&model, &small})
    if (each->remembering_layers() > 0 || each->latent.rank > 0)
      usage_error("has layers without keys and values of heads", each->name, "Maps are of those.");
  const std::uint64_t before = serving.prompt - 1;
  PredictionTime out;
  const PassTime full = pass_time(model, machine, serving, serving.prompt, 0, true),
                 last = pass_time(model, machine, serving, 1, before, true);
  PassTime read{};
  if (before > 0) read = pass_time(small, machine, small_serving, before, 0, false);
  const auto devices = static_cast<double>(serving.tensor_parallel);
  const Ceilings& of = machine.ceilings;
  const auto of_heads = [](const Model& each, std::uint64_t dim) {
    return static_cast<double>(each.kv_heads * dim);
  };
  const double rows = static_cast<double>(before * serving.batch),
               layers = static_cast<double>(model.cached_layers()) / devices,
               in = of_heads(small, small.head_dim) + of_heads(small, small.value_dim),
               to = of_heads(model, model.head_dim) + of_heads(model, model.value_dim),
               numbers = of_heads(small, small.head_dim) * of_heads(model, model.head_dim) +
                         of_heads(small, small.value_dim) * of_heads(model, model.value_dim);
  const double flops = layers * 2 * rows * numbers, bytes = layers * 2 * (numbers + rows * (in + to));
  if (before > 0)  // two products a layer
    out.maps = roofline(flops / (of.compute * machine.matrix_rate), bytes / (of.memory * machine.bandwidth),
                        of.norm) +
               2 * layers * of.launch;
  out.small = read.seconds();
  out.last = last.seconds();
  out.flops = flops_of(read) + flops + flops_of(last);
  out.full_flops = flops_of(full);
  return out;
}

}  // namespace kvsim::cost
