#include "sim/cost/serving.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::cost {
namespace {

void need(bool holds, std::string_view what, std::string_view where, std::string_view hint = {}) {
  if (!holds) usage_error(what, where, hint);
}

void check_heads(const Model& model, const Serving& serving) {
  const std::uint64_t stored = stored_heads(model, serving.layout), degree = serving.tensor_parallel;
  if (stored % model.kv_heads != 0 || model.query_heads % stored != 0)
    usage_error(
        std::to_string(stored) + " stored KV heads are no whole multiple of the model's " +
            std::to_string(model.kv_heads) + " that divides its " + std::to_string(model.query_heads) +
            " query heads",
        "stored KV heads",
        "The model's own number is what caches store; the query heads' what codes store that expand groups");
  if (model.latent.rank != 0 && stored != 1)
    usage_error("a latent is stored once for all heads", "stored KV heads");
  if (model.query_heads % degree != 0)
    usage_error(std::to_string(degree) + " devices do not divide " + std::to_string(model.query_heads) +
                    " query heads",
                "tensor parallel degree", "Use a divisor of the number of heads.");
  if (stored % degree != 0 && degree % stored != 0)
    usage_error(std::to_string(degree) + " devices neither divide nor are a multiple of " +
                    std::to_string(stored) + " stored KV heads",
                "tensor parallel degree");
}

void check_runtime(const Runtime& runtime) {
  need(runtime.cache_traffic >= 1 && std::isfinite(runtime.cache_traffic),
       "a step reads the cache at least once", "cache traffic");
  need(runtime.host_floor >= 0 && std::isfinite(runtime.host_floor), "is no time", "host floor");
  const double bits = runtime.weight_bits.value_or(16), embedding = runtime.embedding_bits.value_or(16);
  need(bits > 0 && std::isfinite(bits), "is not above zero", "weight bits");
  need(embedding > 0 && std::isfinite(embedding), "is not above zero", "embedding bits");
  need(runtime.activation_bytes > 0, "is zero", "activation bytes");
  need(runtime.row_share >= 0 && runtime.row_share <= 1, "is no share between 0 and 1", "row share");
}

void check_offload(const Offload& offload) {
  const auto is_share = [](double value) { return value >= 0 && value <= 1; };
  for (const auto& [shares, what] :
       {std::pair{offload.weights, "offload of weights"}, std::pair{offload.cache, "offload of the cache"}}) {
    for (const Tier tier : kTiers) need(is_share(shares[tier]), "is no share between 0 and 1", what);
    need(shares.host + shares.ssd <= 1 + 1e-12, "shares of host memory and SSD are more than all of it",
         what);
  }
  need(is_share(offload.hit_rate), "is no share between 0 and 1", "hit rate");
  need(is_share(offload.prefetch.value_or(0)), "is no share between 0 and 1", "prefetch");
}

}  // namespace

std::uint64_t stored_heads(const Model& model, const Layout& layout) {
  return layout.stored_kv_heads == 0 ? model.kv_heads : layout.stored_kv_heads;
}

Serving served_with(const Serving& serving, const policy::Composition& composition) {
  Serving out = serving;
  out.layout.storage.representation = composition.representation;
  out.layout.storage.together = composition.layer_unit();
  out.layout.selection = composition.selection;
  return out;
}

void check_serving(const Model& model, const Serving& serving) {
  need(serving.prompt > 0, "is zero: there is nothing to generate from", "prompt");
  need(serving.batch > 0, "is zero", "batch");
  need(serving.tensor_parallel > 0, "is zero", "tensor parallel degree");
  if (serving.chunk > serving.prompt)
    usage_error(std::to_string(serving.chunk) + " tokens are more than the prompt's " +
                    std::to_string(serving.prompt),
                "chunk", "Without chunks the whole prompt is computed at once");
  need(serving.generate <= ~std::uint64_t{0} - serving.prompt, "does not fit 64 bits",
       "prompt and generated tokens");
  check_heads(model, serving);
  check_runtime(serving.runtime);
  check_offload(serving.offload);
  if (serving.offload.any()) require_plain_layers(model, "what is not on the device");
}

}  // namespace kvsim::cost
