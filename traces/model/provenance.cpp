#include "traces/model/provenance.hpp"

#include <tbb/version.h>
#include <unicode/uversion.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "sim/base/version.hpp"
#include "traces/model/hub_cache.hpp"

namespace kvsim::model {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string library_versions() {
  return std::string("kvsim ") + kVersion + " (" + kCommit + "), oneTBB " + TBB_VERSION_STRING + ", ICU " +
         U_ICU_VERSION;
}

}  // namespace

std::string random_uuid() {
  std::random_device device;
  std::string uuid;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) uuid += '-';
    unsigned digit = device() & 15U;
    if (i == 12) digit = 4;
    if (i == 16) digit = 8 | (digit & 3U);
    uuid += "0123456789abcdef"[digit];
  }
  return uuid;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string model_name(const std::string& directory) {
  const std::string hub = hub_name_of(directory);
  return hub.empty() ? std::filesystem::weakly_canonical(directory).filename().string() : hub;
}

trace::Model describe_model(const ModelConfig& config, const Weights& weights, const std::string& directory,
                            std::uint64_t positions) {
  trace::Model model;
  model.name = model_name(directory);
  model.model_type = config.model_type;
  model.architecture = config.architecture;
  model.n_layers = config.n_layers;
  model.n_q_heads = config.n_heads;
  model.n_kv_heads = config.n_kv_heads;
  model.head_dim = config.head_dim;
  model.v_head_dim = config.value_dim();
  if (config.latent.rank > 0) {
    model.values_in_keys = true;
    model.first_rotated = config.latent.rank;
  }
  model.rotary_dim = config.rope.rotary_dim;
  model.hidden_size = config.hidden_size;
  model.vocab_size = config.vocab_size;
  model.attn_scale = config.attention_scale != 0 ? config.attention_scale
                                                 : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  model.logit_softcap = config.attention_cap;
  model.norm_eps = config.norm_eps;
  model.rope_theta = config.rope.theta;
  model.rope_type = config.rope.type;
  model.rope_attention_factor = config.rope.attention_factor;
  if (config.interleaved) model.rope_layout = "interleaved";
  model.tied_embeddings = weights.tied;
  model.qk_norm = config.qk_norm;
  model.qkv_bias = config.qkv_bias;
  model.layer_window = config.layer_window;
  model.chunked = config.chunked;
  model.inv_freq = model::rope_frequencies(config.rope, positions);
  if (config.other_rope) {
    const std::vector<float> others = model::rope_frequencies(*config.other_rope, positions);
    model.inv_freq.insert(model.inv_freq.end(), others.begin(), others.end());
    model.rotation_factor = {config.rope.attention_factor, config.other_rope->attention_factor};
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer)
      model.layer_rotation.push_back(config.rotates_apart(layer) ? 1 : 0);
  }
  if (config.sinks)
    for (const LayerWeights& layer : weights.layers)
      model.sinks.insert(model.sinks.end(), layer.sinks.begin(), layer.sinks.end());
  model.config_json = config.json;
  return model;
}

trace::Capture describe_processor(unsigned threads) {
  trace::Capture capture;
  capture.source = "native-cpu";
  capture.device_name = "cpu";
  capture.cpu_model = processor_name();
  capture.device_kind = "cpu";
  capture.compute_dtype = capture.accum_dtype = "f32";
  capture.math_mode = "ieee";
  capture.attention_kernel = "softmax over query blocks";
  capture.software = library_versions();
  capture.threads = threads;
  return capture;
}

}  // namespace kvsim::model
