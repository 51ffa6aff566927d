#include "sim/cost/model.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "sim/cost/catalogue_files.hpp"
#include "sim/cost/checked.hpp"
#include "traces/model/gguf_model.hpp"
#include "traces/model/model_config.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1ULL << 20;
constexpr const char* kParameters = "the model's parameters";

/// Returns the parameters of one norm.
std::uint64_t norm_parameters(const Model& model) {
  return checked_product(kParameters, model.hidden, model.layer_norm ? 2 : 1);
}

std::uint64_t attention_extras(const Model& model) {
  const model::Latent& latent = model.latent;
  if (latent.rank != 0) return checked_sum(kParameters, latent.rank, latent.query_rank);  // their norms
  std::uint64_t total = model.sinks ? model.query_heads : 0;
  if (model.qk_norm && !model.bare_qk_norm)
    total =
        checked_sum(kParameters, total,
                    checked_product(kParameters, model.head_dim, model.wide_qk_norm ? model.query_heads : 1),
                    checked_product(kParameters, model.head_dim, model.wide_qk_norm ? model.kv_heads : 1));
  if (model.qkv_bias) {
    total = checked_sum(
        kParameters, total,
        checked_product(kParameters, model.head_dim, model.query_heads, model.gated_attention ? 2 : 1),
        checked_product(kParameters, model.head_dim, model.kv_heads),
        checked_product(kParameters, model.value_dim, model.kv_heads));
  }
  return model.output_bias ? checked_sum(kParameters, total, model.hidden) : total;
}

/// Of a feed-forward: biases; with experts the router, too.
std::uint64_t mlp_extras(const Model& model, model::LayerKind::Mlp mlp) {
  if (mlp == model::LayerKind::Mlp::none) return 0;
  const auto biases = [&](std::uint64_t width) {
    return checked_sum(kParameters, model.hidden, width, model.gated_mlp ? width : 0);
  };
  if (mlp == model::LayerKind::Mlp::dense) return model.mlp_bias ? biases(model.ffn) : 0;
  const model::Experts& experts = model.experts;
  std::uint64_t total = checked_product(kParameters, model.hidden, experts.count);
  if (experts.corrected) total = checked_sum(kParameters, total, experts.count);
  if (experts.shared_gate) total = checked_sum(kParameters, total, model.hidden);
  if (experts.biased)
    total = checked_sum(kParameters, total, experts.count,
                        checked_product(kParameters, experts.count, biases(experts.width)));
  return total;
}

std::uint64_t parameters_of(const Products& products) {
  std::uint64_t total = 0;
  for (const auto& [inputs, outputs] : products)
    total = checked_sum(kParameters, total, checked_product(kParameters, inputs, outputs));
  return total;
}

/// Returns the bits of matrices as a checkpoint stores them.
double bits_of(const model::StoredWeights& stored, const Products& products) {
  double bits = 0;
  for (const auto& [inputs, outputs] : products) bits += stored.matrix_bits(inputs, outputs);
  return bits;
}

/// Returns the matrices of attention and MLP as a checkpoint has them, one by one.
Products stored_attention(const Model& model) {
  if (model.latent.rank != 0) return model.attention_products();
  const std::uint64_t h = model.hidden, keys = model.kv_heads * model.head_dim;
  const std::uint64_t queries = model.query_heads * model.head_dim;
  return {{h, queries * (model.gated_attention ? 2 : 1)}, {h, keys}, {h, keys}, {queries, h}};
}
Products stored_mlp(const Model& model, std::uint64_t width) {
  Products out{{model.hidden, width}, {width, model.hidden}};
  if (model.gated_mlp) out.push_back({model.hidden, width});
  return out;
}

/// Takes over what quantization_config says of the blocks' matrices.
void read_bits(const model::StoredWeights& stored, Model& model) {
  if (stored.method.empty()) return;
  using Mlp = model::LayerKind::Mlp;
  double shared = 0, experts = 0;
  for (const model::LayerKind& kind : model.layer_kinds()) {
    double bits = 0;
    if (kind.attends)
      bits += bits_of(stored, kind.crosses ? model.crossing_products() : stored_attention(model));
    if (kind.crosses) shared += bits_of(stored, model.shared_products());
    if (kind.remembers) bits += bits_of(stored, model.recurrence.matrices);
    if (kind.mlp == Mlp::dense) bits += bits_of(stored, stored_mlp(model, model.ffn));
    if (kind.mlp == Mlp::experts) {
      const auto all = static_cast<double>(kind.layers * model.experts.count);
      experts += all * bits_of(stored, stored_mlp(model, model.experts.width));
      if (model.experts.shared_width > 0)
        bits += bits_of(stored, stored_mlp(model, model.experts.shared_width));
    }
    shared += static_cast<double>(kind.layers) * bits;
  }
  if (!stored.experts_only)
    model.weight_bits = shared / static_cast<double>(model.shared_matrix_parameters());
  if (experts > 0) model.expert_bits = experts / static_cast<double>(model.expert_parameters());
  model.product_bits = stored.product_bits;
  model.remarks = "weights of " + stored.method;
}

}  // namespace

std::vector<model::LayerKind> Model::layer_kinds() const {
  if (kinds.empty()) return {{.layers = layers}};
  std::vector<model::LayerKind> sums;
  for (const model::LayerKind& kind : kinds) {
    const auto same =
        std::find_if(sums.begin(), sums.end(), [&](const model::LayerKind& sum) { return sum.alike(kind); });
    if (same == sums.end())
      sums.push_back(kind);
    else
      same->layers += kind.layers;
  }
  return sums;
}

std::uint64_t Model::cached_layers() const {
  std::uint64_t count = kinds.empty() ? layers : crossing_layers() > 0 ? 1 : 0;
  for (const model::LayerKind& kind : kinds) count += kind.attends && !kind.crosses ? kind.layers : 0;
  return count;
}

std::uint64_t Model::crossing_layers() const {
  std::uint64_t count = 0;
  for (const model::LayerKind& kind : kinds) count += kind.crosses ? kind.layers : 0;
  return count;
}

std::uint64_t Model::remembering_layers() const {
  std::uint64_t count = 0;
  for (const model::LayerKind& kind : kinds) count += kind.remembers ? kind.layers : 0;
  return count;
}

std::uint64_t Model::state_bytes() const {
  return checked_sum("a state", checked_product("a state", recurrence.state, recurrence.state_bytes),
                     checked_product("a state", recurrence.convolution, 2));
}

Products Model::attention_products() const {
  if (latent.rank != 0) {
    const std::uint64_t queries = checked_product(kParameters, query_heads, latent.plain + latent.rotated);
    const std::uint64_t compressed = latent.query_rank == 0 ? queries : latent.query_rank;
    Products out{{hidden, compressed + latent.rank + latent.rotated}};
    if (latent.query_rank != 0) out.push_back({latent.query_rank, queries});
    out.push_back({latent.rank, checked_product(kParameters, query_heads, latent.plain + latent.value)});
    out.push_back({checked_product(kParameters, query_heads, latent.value), hidden});
    return out;
  }
  return {{hidden, checked_sum(kParameters,
                               checked_product(kParameters, query_heads, head_dim, gated_attention ? 2 : 1),
                               checked_product(kParameters, kv_heads, head_dim + value_dim))},
          {checked_product(kParameters, query_heads, value_dim), hidden}};
}

Products Model::crossing_products() const {
  return {{hidden, checked_product(kParameters, query_heads, head_dim)},
          {checked_product(kParameters, query_heads, value_dim), hidden}};
}

Products Model::shared_products() const {
  return {{hidden, checked_product(kParameters, kv_heads, head_dim + value_dim)}};
}

Products Model::mlp_products(std::uint64_t width) const {
  return {{hidden, checked_product(kParameters, width, gated_mlp ? 2 : 1)}, {width, hidden}};
}

std::uint64_t Model::shared_matrix_parameters() const {
  using Mlp = model::LayerKind::Mlp;
  std::uint64_t total = crossing_layers() > 0 ? parameters_of(shared_products()) : 0;
  for (const model::LayerKind& kind : layer_kinds()) {
    const std::uint64_t width = kind.mlp == Mlp::dense     ? ffn
                                : kind.mlp == Mlp::experts ? experts.shared_width
                                                           : 0;
    const std::uint64_t layer = checked_sum(
        kParameters,
        kind.attends ? parameters_of(kind.crosses ? crossing_products() : attention_products()) : 0,
        kind.remembers ? parameters_of(recurrence.matrices) : 0, parameters_of(mlp_products(width)));
    total = checked_sum(kParameters, total, checked_product(kParameters, kind.layers, layer));
  }
  return total;
}

std::uint64_t Model::expert_parameters() const {
  std::uint64_t total = 0;
  for (const model::LayerKind& kind : layer_kinds())
    if (kind.mlp == model::LayerKind::Mlp::experts)
      total = checked_sum(kParameters, total,
                          checked_product(kParameters, kind.layers, experts.count,
                                          parameters_of(mlp_products(experts.width))));
  return total;
}

std::uint64_t Model::block_matrix_parameters() const {
  return checked_sum(kParameters, shared_matrix_parameters(), expert_parameters()) / layers;
}

std::uint64_t Model::embedding_parameters() const {
  return checked_sum(kParameters, checked_product(kParameters, vocab, hidden, tied_embeddings ? 1 : 2),
                     checked_product(kParameters, learned_positions, hidden));
}

std::uint64_t Model::small_parameters() const {
  std::uint64_t total =
      checked_sum(kParameters, norms_of_sums ? 0 : norm_parameters(*this), head_bias ? vocab : 0,
                  crossing_layers() > 0 ? norm_parameters(*this) : 0);  // before what is shared
  for (const model::LayerKind& kind : layer_kinds()) {
    const std::uint64_t layer =
        checked_sum(kParameters, checked_product(kParameters, norm_parameters(*this), norms_per_block()),
                    kind.attends ? attention_extras(*this) : 0, kind.remembers ? recurrence.small : 0,
                    mlp_extras(*this, kind.mlp));
    total = checked_sum(kParameters, total, checked_product(kParameters, kind.layers, layer));
  }
  return total;
}

std::uint64_t Model::parameters() const {
  return checked_sum(kParameters, shared_matrix_parameters(), expert_parameters(), embedding_parameters(),
                     small_parameters());
}

std::uint64_t Model::streamed_parameters() const {
  const std::uint64_t routed = experts.count == 0 ? 0 : expert_parameters() / experts.count * experts.used;
  return checked_sum(kParameters, shared_matrix_parameters(), routed,
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
  share.experts.width = static_cast<std::uint32_t>(ceil_divided(model.experts.width, tensor_parallel));
  share.experts.shared_width = ceil_divided(model.experts.shared_width, tensor_parallel);
  for (auto& [inputs, outputs] : share.recurrence.matrices) {
    std::uint64_t& split = inputs == model.hidden ? outputs : inputs;
    split = ceil_divided(split, tensor_parallel);
  }
  share.recurrence.small = ceil_divided(model.recurrence.small, tensor_parallel);
  share.recurrence.state = ceil_divided(model.recurrence.state, tensor_parallel);
  share.recurrence.convolution = ceil_divided(model.recurrence.convolution, tensor_parallel);
  return share;
}

std::uint64_t local_kv_heads(std::uint64_t stored_kv_heads, std::uint64_t tensor_parallel) {
  return std::max<std::uint64_t>(1, ceil_divided(stored_kv_heads, tensor_parallel));
}

std::vector<WindowRun> Model::window_runs() const {
  if (full_layers.empty()) return {{cached_layers(), window}};
  std::vector<WindowRun> runs;
  for (const bool full : full_layers) {
    const std::uint64_t here = full ? 0 : window;
    if (runs.empty() || runs.back().window != here) runs.push_back({0, here});
    ++runs.back().layers;
  }
  return runs;
}

std::vector<WindowRun> Model::window_sums() const {
  std::vector<WindowRun> sums;
  for (const WindowRun& run : window_runs()) {
    const auto same = std::find_if(sums.begin(), sums.end(),
                                   [&](const WindowRun& sum) { return sum.window == run.window; });
    if (same != sums.end())
      same->layers += run.layers;
    else
      sums.insert(run.window == 0 ? sums.begin() : sums.end(), run);
  }
  return sums;
}

void require_caches(const Model& model, const std::string& what) {
  if (model.remembering_layers() > 0)
    usage_error(what + " counts tokens, and some layers hold a state of fixed size instead",
                "model " + model.name);
}

void require_equal_layers(const Model& model, const std::string& what) {
  require_caches(model, what);
  if (model.window_runs().size() > 1)
    usage_error(what + " counts one number of tokens for all layers, and only some have a sliding window",
                "model " + model.name);
}

void require_plain_layers(const Model& model, const std::string& what) {
  if (!model.kinds.empty() || model.latent.rank != 0)
    usage_error(what + " is priced for layers of one attention and one MLP with keys and values",
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
  model.latent = config.latent;
  if (model.latent.rank != 0) model.value_dim = model.latent.rank;
  model.experts = config.experts;
  model.recurrence = config.recurrence;
  if (config.kinds.size() != 1 || !config.kinds.front().alike({})) model.kinds = config.kinds;
  model.max_context = config.max_positions;
  model.learned_positions = config.learned_positions;
  model.tied_embeddings = config.tied_embeddings.value_or(config.tied_by_default);
  std::vector<std::int32_t> windows;
  auto window = config.layer_window.begin();
  for (const model::LayerKind& kind : config.kinds) {
    if (kind.attends)
      windows.insert(windows.end(), window,
                     window + static_cast<std::ptrdiff_t>(kind.crosses ? 1 : kind.layers));
    window += static_cast<std::ptrdiff_t>(kind.layers);
  }
  if (windows.empty()) input_error("no layer attends, so that there is no cache", name);
  model.window = std::max(0, *std::max_element(windows.begin(), windows.end()));
  model.chunked = config.chunked;
  if (std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to{}) != windows.end())
    for (const std::int32_t one : windows) model.full_layers.push_back(one < 0);
  read_bits(config.stored_weights, model);
  const auto remark = [&](const char* text) {
    model.remarks += std::string(model.remarks.empty() ? "" : ", ") + text;
  };
  if (config.predicts_further) remark("without layers that predict further tokens");
  if (config.text_only) remark("its text model alone");
  return model;
}

Model parse_model(std::string_view json, const std::string& where) {
  const boost::json::value document = model::parse_config_text(json, where);
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
    std::sort(models.begin(), models.end(), [](const Model& a, const Model& b) { return a.name < b.name; });
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
