// Any text either is a config.json that kvsim computes with or is refused as an input error. The weights of a
// real checkpoint either fit an accepted one, and lie within their file, or are refused.
#include <cmath>
#include <map>

#include "tests/fuzz/target.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/rope.hpp"
#include "traces/model/safetensors.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::fuzz::fuzz_config {
namespace {

const model::Checkpoint* checkpoint_of(const std::string& model_type) {
  static const std::string kGolden = KVSIM_SOURCE_DIR "/tests/golden/";
  static const std::map<std::string, model::Checkpoint> kCheckpoints = [] {
    std::map<std::string, model::Checkpoint> out;
    for (const auto& [type, folder] : {std::pair{"llama", "capture/llama_rope_llama3"},
                                       {"phi3", "capture/phi3_partial_rotary"},
                                       {"qwen2", "capture/qwen2_mixed_windows"},
                                       {"qwen3", "capture/qwen3_qk_norm"},
                                       {"cohere", "capture/cohere_qk_norm"},
                                       {"exaone4", "capture/exaone4_rotated_windows"},
                                       {"gemma2", "capture/gemma2_capped"},
                                       {"llama4_text", "capture/llama4_chunks"},
                                       {"mixtral", "capture/mixtral_experts"},
                                       {"gpt_neox", "capture/gpt_neox_parallel"},
                                       {"olmo3", "capture/olmo3_yarn_in_full_layers"},
                                       {"opt", "capture/opt_learned_positions"},
                                       {"smollm3", "capture/smollm3_unrotated_layer"},
                                       {"deepseek_v3", "quantised/deepseek_v3_fp8"},
                                       {"gpt_oss", "quantised/gpt_oss_mxfp4"}})
      out.emplace(std::piecewise_construct, std::forward_as_tuple(type),
                  std::forward_as_tuple(kGolden + folder));
    return out;
  }();
  const auto found = kCheckpoints.find(model_type);
  return found == kCheckpoints.end() ? nullptr : &found->second;
}

void load(const model::Checkpoint& checkpoint, const model::ModelConfig& config) {
  for (const model::LayerWeights& layer : model::load_weights(checkpoint, config).layers) {
    std::vector<const model::Linear*> parts{&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up};
    if (layer.experts != nullptr) parts.push_back(&layer.experts->experts.back().down);
    for (const model::Linear* part : parts) {
      if (part->out == 0) continue;  // of another kind of layer
      std::vector<float> row;
      require(std::isfinite(part->rows(part->out - 1, 1, row)[part->in - 1]),
              "weights lie within their file");
    }
  }
}

void read(std::string_view input) {
  const model::ModelConfig config = model::parse_model_config(std::string(input), "fuzz");
  require(config.n_heads % config.n_kv_heads == 0, "a KV head serves whole query heads");
  require(config.layer_window.size() == config.n_layers, "every layer has a window");
  for (const std::uint64_t position : {0ULL, 1ULL, 131072ULL})
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer)
      for (const float f : model::rope_frequencies(config.rope_of(layer), position))
        require(f >= 0 && f <= 1000, "frequencies are those of a rotation");
  for (const std::int32_t id : config.eos)
    require(id >= 0 && static_cast<std::uint32_t>(id) < config.vocab_size,
            "the last token is in the vocabulary");
  if (const model::Checkpoint* checkpoint = checkpoint_of(config.model_type))
    accepts([&] { load(*checkpoint, config); });
}

const Registered kTarget({"config", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_config
