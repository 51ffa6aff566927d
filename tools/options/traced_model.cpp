#include "tools/options/traced_model.hpp"

#include "sim/base/error.hpp"

namespace kvsim::tools {
namespace {

std::string shape_text(std::uint64_t layers, std::uint64_t query_heads, std::uint64_t kv_heads,
                       std::uint64_t head_dim, std::uint64_t value_dim) {
  std::string text = std::to_string(layers) + " layers, " + std::to_string(query_heads) + " query and " +
                     std::to_string(kv_heads) + " KV heads of " + std::to_string(head_dim);
  if (value_dim != head_dim) text += " and " + std::to_string(value_dim);
  return text;
}

}  // namespace

cost::Model traced_model(const trace::Sequence& sequence, const std::string& file, const std::string& asked) {
  const trace::Model& traced = sequence.model();
  if (asked.empty()) {
    if (traced.config_json.empty())
      usage_error("the trace does not hold its model's config.json", file,
                  "Say --model: a name of `kvsim cost models`, or a config.json.");
    cost::Model model = cost::parse_model(traced.config_json, file + " config.json");
    if (!traced.name.empty()) model.name = traced.name;
    return model;
  }
  cost::Model model = cost::find_model(asked);
  const std::string wanted =
      shape_text(traced.n_layers, traced.n_q_heads, traced.n_kv_heads, traced.head_dim, traced.v_head_dim);
  const std::string found =
      shape_text(model.layers, model.query_heads, model.kv_heads, model.head_dim, model.value_dim);
  if (wanted != found)
    usage_error("has " + found + "; " + file + " was recorded with " + wanted, "--model " + asked,
                "What a trace's lanes hold says nothing about a model of another shape.");
  return model;
}

}  // namespace kvsim::tools
