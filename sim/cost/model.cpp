#include "sim/cost/model.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "sim/cost/catalogue_files.hpp"
#include "sim/cost/checked.hpp"
#include "traces/model/gguf_model.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr std::size_t kMaxConfigValues = 100'000;
constexpr const char* kParameters = "the model's parameters";

/// Returns the parameters of one norm.
std::uint64_t norm_parameters(const Model& model) {
  return checked_product(kParameters, model.hidden, model.layer_norm ? 2 : 1);
}

std::uint64_t block_extras(const Model& model) {
  std::uint64_t total = checked_product(kParameters, norm_parameters(model), model.norms_per_block);
  if (model.qk_norm)
    total =
        checked_sum(kParameters, total,
                    checked_product(kParameters, model.head_dim, model.wide_qk_norm ? model.query_heads : 1),
                    checked_product(kParameters, model.head_dim, model.wide_qk_norm ? model.kv_heads : 1));
  if (model.qkv_bias) {
    total = checked_sum(kParameters, total, checked_product(kParameters, model.head_dim, model.query_heads),
                        checked_product(kParameters, model.head_dim, model.kv_heads),
                        checked_product(kParameters, model.value_dim, model.kv_heads));
  }
  if (model.output_bias) total = checked_sum(kParameters, total, model.hidden);
  if (model.mlp_bias) {
    total = checked_sum(kParameters, total, model.hidden, model.ffn, model.gated_mlp ? model.ffn : 0);
  }
  return total;
}

}  // namespace

std::uint64_t Model::block_matrix_parameters() const {
  const std::uint64_t attention =
      checked_sum(kParameters, checked_product(kParameters, hidden, head_dim, query_heads),
                  checked_product(kParameters, hidden, kv_heads, head_dim),
                  checked_product(kParameters, hidden, kv_heads, value_dim),
                  checked_product(kParameters, hidden, query_heads, value_dim));
  return checked_sum(kParameters, attention, checked_product(kParameters, hidden, ffn, gated_mlp ? 3 : 2));
}

std::uint64_t Model::embedding_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, vocab, hidden, tied_embeddings ? 1 : 2),
                     checked_product(kParameters, learned_positions, hidden));
}

std::uint64_t Model::small_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_extras(*this)),
                     norm_parameters(*this), head_bias ? vocab : 0);
}

std::uint64_t Model::parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_matrix_parameters()),
                     embedding_parameters(), small_parameters());
}

std::uint64_t Model::streamed_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, layers, block_matrix_parameters()),
                     checked_product(kParameters, vocab, hidden));
}

Model device_share(const Model& model, std::uint64_t tensor_parallel) {
  if (tensor_parallel == 0) usage_error("tensor parallelism needs at least one device", "tensor_parallel");
  if (model.query_heads % tensor_parallel != 0) {
    usage_error(std::to_string(model.query_heads) + " query heads cannot be split over " +
                    std::to_string(tensor_parallel) + " devices",
                "tensor_parallel", "Use a divisor of the number of heads.");
  }
  Model share = model;
  share.query_heads = model.query_heads / tensor_parallel;
  share.kv_heads = local_kv_heads(model.kv_heads, tensor_parallel);
  share.ffn = ceil_divided(model.ffn, tensor_parallel);
  share.vocab = ceil_divided(model.vocab, tensor_parallel);
  return share;
}

std::uint64_t local_kv_heads(std::uint64_t stored_kv_heads, std::uint64_t tensor_parallel) {
  return std::max<std::uint64_t>(1, ceil_divided(stored_kv_heads, tensor_parallel));
}

std::vector<WindowRun> Model::window_runs() const {
  if (full_layers.empty()) return {{layers, window}};
  std::vector<WindowRun> runs;
  for (const bool full : full_layers) {
    const std::uint64_t here = full ? 0 : window;
    if (runs.empty() || runs.back().window != here) runs.push_back({0, here});
    ++runs.back().layers;
  }
  return runs;
}

void require_equal_layers(const Model& model, const std::string& what) {
  if (model.window_runs().size() > 1)
    usage_error(what + " counts one number of tokens for all layers, and only some have a sliding window",
                "model " + model.name);
}

Model model_of(const model::ModelConfig& config, const std::string& name) {
  Model model;
  static_cast<model::LayerParts&>(model) = config;
  model.name = name;
  model.layers = config.n_layers;
  model.hidden = config.hidden_size;
  model.ffn = config.intermediate_size;
  model.vocab = config.vocab_size;
  model.query_heads = config.n_heads;
  model.kv_heads = config.n_kv_heads;
  model.head_dim = model.value_dim = config.head_dim;
  model.max_context = config.max_positions;
  model.learned_positions = config.learned_positions;
  model.tied_embeddings = config.tied_embeddings.value_or(config.tied_by_default);
  const auto& windows = config.layer_window;
  model.window = std::max(0, *std::max_element(windows.begin(), windows.end()));
  if (std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to{}) != windows.end())
    for (const std::int32_t window : windows) model.full_layers.push_back(window < 0);
  const model::StoredWeights& stored = config.stored_weights;
  if (!stored.method.empty()) {
    const std::uint64_t keys = model.kv_heads * model.head_dim, queries = model.query_heads * model.head_dim;
    const double bits = stored.matrix_bits(model.hidden, queries) +
                        2 * stored.matrix_bits(model.hidden, keys) +
                        stored.matrix_bits(queries, model.hidden) +
                        (model.gated_mlp ? 2 : 1) * stored.matrix_bits(model.hidden, model.ffn) +
                        stored.matrix_bits(model.ffn, model.hidden);
    model.weight_bits = bits / static_cast<double>(model.block_matrix_parameters());
    model.remarks = "weights of " + stored.method;
  }
  if (config.text_only)
    model.remarks += std::string(model.remarks.empty() ? "" : ", ") + "its text model alone";
  return model;
}

Model parse_model(std::string_view json, const std::string& where) {
  const boost::json::value document = parse_strict_json(json, where, kMaxConfigValues);
  const JsonObject file(document, where);
  Model model =
      model_of(model::read_model_config(std::string(json), where), file.text_or("kvsim_name", where));
  model.source = file.text_or("kvsim_source", where);
  return model;
}

const std::vector<Model>& known_models() {
  static const std::vector<Model> kModels = [] {
    std::vector<Model> models;
    for (const CatalogueFile& file : model_files()) {
      models.push_back(parse_model(file.text, std::string(file.name)));
    }
    return models;
  }();
  return kModels;
}

Model find_model(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (const Model& model : known_models()) {
    if (edit_distance(model.name, name_or_path) == 0) return model;
    names.push_back(model.name);
  }
  struct stat status {};
  if (::stat(name_or_path.c_str(), &status) != 0) {
    usage_error("unknown model " + in_quotes(name_or_path), {},
                "Give a name, a config.json, a directory that holds one, or a GGUF file. " +
                    suggestion(name_or_path, names));
  }
  if (model::is_gguf(name_or_path)) {
    Model model = parse_model(model::gguf_config(name_or_path), name_or_path);
    const auto [matrices, embeddings] = model::gguf_bits(name_or_path);
    model.weight_bits = std::min(matrices, 16.0);  // served in half precision at most, as any checkpoint
    model.embedding_bits = std::min(embeddings, 16.0);
    if (model.weight_bits < 16) model.remarks = "weights as the file stores them";
    return model;
  }
  const std::string path = S_ISDIR(status.st_mode) ? name_or_path + "/config.json" : name_or_path;
  return parse_model(read_file(path, kMaxConfigBytes), path);
}

}  // namespace kvsim::cost
