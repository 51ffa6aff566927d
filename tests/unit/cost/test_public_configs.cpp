// Public model configurations, reduced to the fields that say what a model takes: each is exact by a formula
// that is worked out here, or refused by name.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost::test_public_configs {
namespace {

using Catch::Contains;

constexpr std::uint64_t kPrompt = 32768;

/// Returns the bytes of keys and values in 16 bits after a prompt, nothing evicted.
std::uint64_t bytes_of_cache(const Model& model, std::uint64_t prompt = kPrompt) {
  Serving serving;
  serving.prompt = prompt;
  serving.generate = 0;
  const policy::Composition full = policy::parse_composition("full", policy::builtin());
  const Holding holding = rule_holding(full, model, 0, prompt, 0, prompt);
  return memory_at(model, Machine{}, serving, holding, cost_of(full, model, prompt, prompt), 0).keys_values;
}

struct Row {
  const char* name;
  const char* json;
  std::uint64_t parameters;
  /// Layers that see everything, layers with a window, the window, numbers of keys and values per token and
  /// layer.
  std::uint64_t full, sliding, window, numbers;
};

/// Matrices of a block: queries and output, keys and values, a gated MLP.
constexpr std::uint64_t block(std::uint64_t hidden, std::uint64_t queries, std::uint64_t keys,
                              std::uint64_t ffn) {
  return 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * ffn;
}

const Row kRows[]{
    {"Llama 3 8B",
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"tie_word_embeddings":false})",
     8'030'261'248, 32, 0, 0, 2 * 8 * 128},
    {"Mistral 7B v0.1, all of whose layers slide",
     R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"sliding_window":4096})",
     7'241'732'096, 0, 32, 4096, 2 * 8 * 128},
    {"Mistral Small 3.1, which nests its text model",
     R"({"model_type":"mistral3","vision_config":{"model_type":"pixtral","hidden_size":1024},"text_config":{
         "model_type":"mistral","head_dim":128,"hidden_size":5120,"intermediate_size":32768,
         "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"sliding_window":null,
         "vocab_size":131072}})",
     40 * (block(5120, 4096, 1024, 32768) + 2 * 5120) + 5120 + 2 * 131072 * 5120ULL, 40, 0, 0, 2 * 8 * 128},
    {"Phi-3 mini, whose window its prompt of 32K exceeds",
     R"({"model_type":"phi3","auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},"hidden_size":3072,
         "intermediate_size":8192,"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
         "sliding_window":2047,"vocab_size":32064,"tie_word_embeddings":false})",
     3'821'079'552, 0, 32, 2047, 2 * 3072},
    {"Gemma 7B",
     R"({"model_type":"gemma","hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,
         "num_attention_heads":16,"num_key_value_heads":16,"head_dim":256,"vocab_size":256000})",
     8'537'680'896, 28, 0, 0, 2 * 16 * 256},
    {"Gemma 2 9B, every second layer of which slides",
     R"({"model_type":"gemma2","hidden_size":3584,"intermediate_size":14336,"num_hidden_layers":42,
         "num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"sliding_window":4096,
         "vocab_size":256000})",
     9'241'705'984, 21, 21, 4096, 2 * 8 * 256},
    {"Gemma 3 1B: of 26 layers every sixth is full",
     R"({"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,"num_hidden_layers":26,
         "num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"sliding_window":512,
         "sliding_window_pattern":6,"vocab_size":262144})",
     999'885'952, 4, 22, 512, 2 * 256},
    {"Gemma 3 4B, which nests its text model and leaves out what its class knows",
     R"({"model_type":"gemma3","vision_config":{"model_type":"siglip_vision_model"},"text_config":{
         "model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,
         "sliding_window":1024}})",
     34 * (block(2560, 8 * 256, 4 * 256, 10240) + 4 * 2560 + 2 * 256) + 2560 + 262208 * 2560ULL, 5, 29, 1024,
     2 * 4 * 256},
    {"Command-R 35B: heads that share nothing, one norm without a bias",
     R"({"model_type":"cohere","hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,
         "num_attention_heads":64,"num_key_value_heads":64,"vocab_size":256000,"use_qk_norm":false})",
     40 * (block(8192, 8192, 8192, 22528) + 8192) + 8192 + 256000 * 8192ULL, 40, 0, 0, 2 * 8192},
    {"Command-R+ 08-2024: norms of each head",
     R"({"model_type":"cohere","hidden_size":12288,"intermediate_size":33792,"num_hidden_layers":64,
         "num_attention_heads":96,"num_key_value_heads":8,"vocab_size":256000,"use_qk_norm":true})",
     64 * (block(12288, 12288, 1024, 33792) + 12288 + 12288 + 1024) + 12288 + 256000 * 12288ULL, 64, 0, 0,
     2 * 8 * 128},
    {"Command R7B: a block in parallel with one norm, every fourth layer full",
     R"({"model_type":"cohere2","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"sliding_window":4096,"sliding_window_pattern":4,
         "layer_switch":4,"order_of_interleaved_layers":"local_attn_first","use_parallel_block":true,
         "vocab_size":256000})",
     8'028'033'024, 8, 24, 4096, 2 * 8 * 128},
    {"OLMo 2 7B: norms of all queries and all keys",
     R"({"model_type":"olmo2","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":100352,"tie_word_embeddings":false})",
     32 * (block(4096, 4096, 4096, 11008) + 4 * 4096) + 4096 + 2 * 100352 * 4096ULL, 32, 0, 0, 2 * 4096},
    {"OLMo 3 7B, the same with windows",
     R"({"model_type":"olmo3","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":32,"sliding_window":4096,"vocab_size":100278,
         "tie_word_embeddings":false})",
     7'298'011'136, 8, 24, 4096, 2 * 4096},
    {"EXAONE 4.0, reduced to eight layers, which names each",
     R"({"model_type":"exaone4","hidden_size":5120,"intermediate_size":27392,"num_hidden_layers":8,
         "num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"sliding_window":4096,
         "sliding_window_pattern":"LLLG","vocab_size":102400,"tie_word_embeddings":false,
         "layer_types":["sliding_attention","sliding_attention","sliding_attention","full_attention",
                        "sliding_attention","sliding_attention","sliding_attention","full_attention"]})",
     8 * (block(5120, 5120, 1024, 27392) + 2 * 5120 + 2 * 128) + 5120 + 2 * 102400 * 5120ULL, 2, 6, 4096,
     2 * 8 * 128},
    {"GLM-4 9B: biases of queries, keys and values",
     R"({"model_type":"glm","attention_bias":true,"hidden_size":4096,"intermediate_size":13696,
         "num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,
         "vocab_size":151552,"tie_word_embeddings":false})",
     9'399'951'360, 40, 0, 0, 2 * 2 * 128},
    {"GLM-4 32B 0414: four norms, no biases",
     R"({"model_type":"glm4","attention_bias":false,"hidden_size":6144,"intermediate_size":23040,
         "num_hidden_layers":61,"num_attention_heads":48,"num_key_value_heads":2,"head_dim":128,
         "vocab_size":151552,"tie_word_embeddings":false})",
     61 * (block(6144, 6144, 256, 23040) + 4 * 6144) + 6144 + 2 * 151552 * 6144ULL, 61, 0, 0, 2 * 2 * 128},
    {"Granite 3.1 8B",
     R"({"model_type":"granite","hidden_size":4096,"intermediate_size":12800,"num_hidden_layers":40,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":49155,"tie_word_embeddings":true})",
     40 * (block(4096, 4096, 1024, 12800) + 2 * 4096) + 4096 + 49155 * 4096ULL, 40, 0, 0, 2 * 8 * 128},
    {"Qwen 7B, whose intermediate_size is that of two matrices",
     R"({"model_type":"qwen","auto_map":{"AutoConfig":"configuration_qwen.QWenConfig"},"hidden_size":4096,
         "intermediate_size":22016,"kv_channels":128,"no_bias":true,"num_attention_heads":32,
         "num_hidden_layers":32,"seq_length":8192,"vocab_size":151936,"tie_word_embeddings":false})",
     7'721'324'544, 32, 0, 0, 2 * 4096},
    {"Qwen 2.5 7B, whose window is off",
     R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"max_window_layers":28,
         "num_attention_heads":28,"num_hidden_layers":28,"num_key_value_heads":4,"sliding_window":131072,
         "use_sliding_window":false,"vocab_size":152064,"tie_word_embeddings":false})",
     7'615'616'512, 28, 0, 0, 2 * 4 * 128},
    {"Qwen 2 7B with its window on, from layer 20",
     R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"max_window_layers":20,
         "num_attention_heads":28,"num_hidden_layers":28,"num_key_value_heads":4,"sliding_window":4096,
         "use_sliding_window":true,"vocab_size":152064,"tie_word_embeddings":false})",
     7'615'616'512, 20, 8, 4096, 2 * 4 * 128},
    {"Qwen 3 4B",
     R"({"model_type":"qwen3","hidden_size":2560,"intermediate_size":9728,"num_attention_heads":32,
         "num_hidden_layers":36,"num_key_value_heads":8,"head_dim":128,"sliding_window":null,
         "use_sliding_window":false,"vocab_size":151936,"tie_word_embeddings":true})",
     4'022'468'096, 36, 0, 0, 2 * 8 * 128},
};

/// Models with experts, latents or states: the parameters are those of transformers 5.23's class on a device
/// without memory, with the numbers that are added to experts' scores, which it does not count
/// (tests/hf/test_parameter_counts.py counts the catalogue anew).
struct MixedRow {
  const char* model;  ///< in the catalogue, or a file
  std::uint64_t parameters, active;
  /// As in Row: layers that see everything, that slide, the window, numbers of a token in each.
  std::uint64_t full, sliding, window, numbers;
  std::uint64_t remembering, state_bytes;  ///< layers with a state, bytes of it in one of them
};

/// A state of 32 bits for each head, and inputs of a convolution in 16.
constexpr std::uint64_t state(std::uint64_t numbers, std::uint64_t convolved, std::uint64_t kernel = 4) {
  return 4 * numbers + 2 * (kernel - 1) * convolved;
}

const MixedRow kMixed[]{
    // 61 * (512 + 64) numbers of two bytes are 70,272 bytes a token. 61 * 187,107,328 of latent attention, 3
    // * 3 *
    // 7168 * 18432 of dense MLPs, 58 * (1 + 8) * 3 * 7168 * 2048 of experts, a head of 129280 * 7168.
    {"deepseek-v3", 671'026'419'200, 36'518'166'528, 61, 0, 0, 576, 0, 0},
    {"kimi-k2", 1'026'408'232'448, 31'520'915'456, 61, 0, 0, 576, 0, 0},
    {"glm-4.7-flash", 29'943'393'920, 3'573'284'864, 47, 0, 0, 576, 0, 0},
    // Queries are not compressed, two experts are shared.
    {R"({"model_type":"deepseek_v2","auto_map":{"AutoConfig":"configuration_deepseek.DeepseekV2Config"},
         "hidden_size":2048,"intermediate_size":10944,"moe_intermediate_size":1408,"num_hidden_layers":27,
         "num_attention_heads":16,"num_key_value_heads":16,"n_shared_experts":2,"n_routed_experts":64,
         "num_experts_per_tok":6,"moe_layer_freq":1,"first_k_dense_replace":1,"kv_lora_rank":512,
         "q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"vocab_size":102400,
         "n_group":1,"topk_group":1,"aux_loss_alpha":0.001,"seq_aux":true,"ep_size":1,"pretraining_tp":1,
         "topk_method":"greedy","max_position_embeddings":163840,"tie_word_embeddings":false})",
     15'706'484'224, 2'447'900'672, 27, 0, 0, 576, 0, 0},
    // 48 layers of 2 * 2048 * 4096 + 2 * 2048 * 512 and 8 of 128 experts of 3 * 2048 * 768.
    {"qwen3-30b-a3b", 30'532'122'624, 3'029'073'920, 48, 0, 0, 2 * 4 * 128, 0, 0},
    {"qwen3-235b-a22b", 235'093'634'560, 21'518'352'384, 94, 0, 0, 2 * 4 * 128, 0, 0},
    {"qwen3-coder-480b-a35b", 480'154'875'392, 34'479'538'176, 62, 0, 0, 2 * 8 * 128, 0, 0},
    {R"({"model_type":"qwen2_moe","hidden_size":2048,"intermediate_size":5632,"moe_intermediate_size":1408,
         "shared_expert_intermediate_size":5632,"num_hidden_layers":24,"num_attention_heads":16,
         "num_key_value_heads":16,"num_experts":60,"num_experts_per_tok":4,"decoder_sparse_step":1,
         "use_sliding_window":false,"sliding_window":32768,"max_window_layers":21,"vocab_size":151936})",
     14'315'784'192, 2'374'762'496, 24, 0, 0, 2 * 16 * 128, 0, 0},
    {"mixtral-8x7b", 46'702'792'704, 12'747'538'432, 32, 0, 0, 2 * 8 * 128, 0, 0},
    {R"({"model_type":"olmoe","hidden_size":2048,"intermediate_size":1024,"num_hidden_layers":16,
         "num_attention_heads":16,"num_key_value_heads":16,"num_experts":64,"num_experts_per_tok":8,
         "vocab_size":50304,"max_position_embeddings":4096})",
     6'919'161'856, 1'176'764'416, 16, 0, 0, 2 * 16 * 128, 0, 0},
    // Experts with biases, sinks of 64 heads, every second layer with a window.
    {"gpt-oss-20b", 20'914'757'184, 3'604'930'560, 12, 12, 128, 2 * 8 * 64, 0, 0},
    {"gpt-oss-120b", 116'829'156'672, 5'117'829'120, 18, 18, 128, 2 * 8 * 64, 0, 0},
    {"glm-4.5", 352'797'829'024, 32'781'107'200, 92, 0, 0, 2 * 8 * 128, 0, 0},
    {"glm-4.5-air", 106'852'251'264, 12'778'733'568, 46, 0, 0, 2 * 8 * 128, 0, 0},
    {"minimax-m2", 228'689'764'864, 10'366'353'408, 62, 0, 0, 2 * 8 * 128, 0, 0},
    // Llama 4 Scout, whose class takes its sizes for what the file leaves out: 48 * (2 * 5120 * 5120 + 2 *
    // 5120 *
    // 1024 + 17 * 3 * 5120 * 8192 + 16 * 5120 + 2 * 5120) + 5120 + 2 * 202048 * 5120, of which one and the
    // shared
    // of 17 feed-forwards, no norms, no router and no embedding are read for a token. A chunk of 8192 in 36
    // layers.
    {R"({"model_type":"llama4","vision_config":{"model_type":"llama4_vision_model"},"text_config":{
         "model_type":"llama4_text","hidden_size":5120,"intermediate_size":8192,"intermediate_size_mlp":16384,
         "num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"num_local_experts":16,
         "num_experts_per_tok":1,"interleave_moe_layer_step":1,"no_rope_layers":[],"attention_chunk_size":8192,
         "attn_temperature_tuning":true,"attn_scale":0.1,"floor_scale":8192,"use_qk_norm":true,
         "for_llm_compressor":false,"vocab_size":202048,"tie_word_embeddings":false}})",
     48 * (2 * 5120 * 5120ULL + 2 * 5120 * 1024 + 17 * 3 * 5120 * 8192ULL + 16 * 5120 + 2 * 5120) + 5120 +
         2 * 202048 * 5120ULL,
     48 * (2 * 5120 * 5120ULL + 2 * 5120 * 1024 + 2 * 3 * 5120 * 8192ULL) + 202048 * 5120ULL, 12, 36, 8192,
     2 * 8 * 128, 0, 0},
    // Every fourth layer attends. The others hold 32 matrices of 128 * 128 and convolve 2 * 2048 + 4096
    // channels.
    {"qwen3-next-80b-a3b", 79'674'391'296, 3'511'943'168, 12, 0, 0, 2 * 2 * 256, 36,
     state(32 * 128 * 128, 8192)},
    {R"({"model_type":"qwen3_5_moe","vision_config":{"depth":27},"text_config":{"model_type":"qwen3_5_moe_text",
         "hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,"num_key_value_heads":2,
         "head_dim":256,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts":256,
         "num_experts_per_tok":8,"linear_num_value_heads":32,"mamba_ssm_dtype":"float32","attn_output_gate":true,
         "mtp_num_hidden_layers":1,"vocab_size":248320}})",
     34'660'610'688, 2'924'216'320, 10, 0, 0, 2 * 2 * 256, 30, state(32 * 128 * 128, 8192)},
    // 24 layers of Mamba 2 with 128 heads of 64 * 128, 4 of attention, 24 of MLPs without a gate.
    {R"({"model_type":"nemotron_h","hidden_size":4096,"intermediate_size":21504,"num_hidden_layers":52,
         "hybrid_override_pattern":"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
         "num_attention_heads":32,"num_key_value_heads":8,"attention_head_dim":128,"mamba_num_heads":128,
         "mamba_head_dim":64,"ssm_state_size":128,"n_groups":8,"conv_kernel":4,"expand":2,"chunk_size":128,
         "use_conv_bias":true,"time_step_limit":[0.0,Infinity],"mamba_hidden_act":"silu","mlp_hidden_act":"relu2","vocab_size":131072,
         "max_position_embeddings":8192,"tie_word_embeddings":false})",
     8'100'852'736, 7'562'330'112, 4, 0, 0, 2 * 8 * 128, 24, state(128 * 64 * 128, 8192 + 2 * 8 * 128)},
    {"nemotron-3-nano-30b-a3b", 31'577'940'288, 3'218'890'752, 6, 0, 0, 2 * 2 * 128, 23,
     state(64 * 64 * 128, 4096 + 2 * 8 * 128)},
    // Mamba 1 in 28 of 32 layers: 8192 channels of 16 numbers.
    {R"({"model_type":"jamba","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"attn_layer_period":8,"attn_layer_offset":4,
         "expert_layer_period":2,"expert_layer_offset":1,"num_experts":16,"num_experts_per_tok":2,
         "mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2,"mamba_dt_rank":256,"mamba_conv_bias":true,
         "mamba_proj_bias":false,"mamba_inner_layernorms":true,"use_mamba_kernels":true,"sliding_window":null,
         "vocab_size":65536,"tie_word_embeddings":false})",
     51'570'323'328, 11'835'277'312, 4, 0, 0, 2 * 8 * 128, 28, state(8192 * 16, 8192)},
    {R"({"model_type":"bamba","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"attn_layer_indices":[9,18,27],"attn_rotary_emb":64,
         "mamba_chunk_size":256,"mamba_conv_bias":true,"mamba_d_conv":4,"mamba_d_head":64,"mamba_d_state":128,
         "mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":128,"mamba_proj_bias":false,"vocab_size":128256})",
     9'780'235'392, 9'253'158'912, 3, 0, 0, 2 * 8 * 128, 29, state(8192 * 128, 8192 + 2 * 128)},
    // Every layer attends and remembers.
    {"falcon-h1-34b", 33'642'221'312, 32'302'694'400, 72, 0, 0, 2 * 4 * 128, 72,
     state(4096 * 256, 4096 + 2 * 2 * 256)},
    {"gemma-3-27b", 27'009'346'304, 27'007'991'808, 10, 52, 1024, 2 * 16 * 128, 0, 0},
    {"smollm3-3b", 3'075'098'624, 3'074'949'120, 36, 0, 0, 2 * 4 * 128, 0, 0},
};

/// The fields by which each says what it is, and the word of the message.
const std::pair<const char*, const char*> kRefused[]{
    {R"({"model_type":"ernie4_5_moe","moe_num_experts":64,"moe_intermediate_size":1536})", "ernie4_5_moe"},
    {R"({"model_type":"deepseek_v32","kv_lora_rank":512,"index_topk":2048})", "deepseek_v32"},
    {R"({"model_type":"gemma3n","text_config":{"model_type":"gemma3n_text","num_kv_shared_layers":10}})",
     "gemma3n_text"},
    {R"({"model_type":"falcon","alibi":false})", "falcon"},
};

/// The sample model's sizes, of a type and with fields that a test adds.
std::string sample(const std::string& type, const std::string& more) {
  return R"({"model_type":")" + type + R"(","hidden_size":256,"intermediate_size":768,"num_hidden_layers":4,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":64,"vocab_size":2048)" +
         (more.empty() ? "" : ",") + more + "}";
}

std::string layer_types(const std::vector<std::string>& types) {
  std::string list;
  for (const std::string& type : types) list += (list.empty() ? "\"" : ",\"") + type + "_attention\"";
  return "\"layer_types\":[" + list + "]";
}

std::string refusal(const std::string& json) {
  try {
    parse_model(json, "config.json");
    return "accepted";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
}

}  // namespace

TEST_CASE("public configurations are exact by formula", "[cost][model]") {
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    const Model model = parse_model(row.json, "config.json");
    CHECK(model.parameters() == row.parameters);
    CHECK(model.layers == row.full + row.sliding);
    CHECK(bytes_of_cache(model) ==
          2 * row.numbers * (row.full * kPrompt + row.sliding * std::min(kPrompt, row.window)));
    // Before a window is full no layer holds less than another.
    CHECK(bytes_of_cache(model, 100) == 2 * row.numbers * model.layers * 100);
  }
}

TEST_CASE("experts, latents and states of public configurations are exact by formula", "[cost][model]") {
  for (const MixedRow& row : kMixed) {
    CAPTURE(row.model);
    const Model model = row.model[0] == '{' ? parse_model(row.model, "config.json") : find_model(row.model);
    CHECK(model.parameters() == row.parameters);
    CHECK(model.streamed_parameters() == row.active);
    CHECK(model.cached_layers() == row.full + row.sliding);
    CHECK(bytes_of_cache(model) ==
          2 * row.numbers * (row.full * kPrompt + row.sliding * std::min(kPrompt, row.window)));
    CHECK(bytes_of_cache(model, 100) == 2 * row.numbers * model.cached_layers() * 100);
    CHECK(model.remembering_layers() == row.remembering);
    CHECK(model.state_bytes() == row.state_bytes);
  }
  CHECK(full_cache_bytes(find_model("deepseek-v3"), Layout{}, 1, 1) == 70'272);
}

TEST_CASE("Nemotron-H is the same by letters and by names", "[cost][model]") {
  const auto read = [](const std::string& layers) {
    return parse_model(
        R"({"model_type":"nemotron_h","hidden_size":64,"intermediate_size":96,"mamba_num_heads":4,
                           "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,)" +
            layers + "}",
        "config.json");
  };
  const Model letters = read(R"("num_hidden_layers":4,"hybrid_override_pattern":"ME*-")");
  const Model names = read(R"("layers_block_type":["linear_attention","moe","full_attention","mlp"],
                                "mtp_layers_block_type":["full_attention","moe"])");
  CHECK(names.layers == 4);
  CHECK(names.parameters() == letters.parameters());
  CHECK(names.cached_layers() == 1);
  CHECK(names.remembering_layers() == 1);
  CHECK_THROWS_WITH(read(R"("num_hidden_layers":5,"hybrid_override_pattern":"ME*-")"), Contains("4 letters"));
  CHECK_THROWS_WITH(read(R"("num_hidden_layers":1,"hybrid_override_pattern":"X")"), Contains("\"X\""));
}

TEST_CASE("public configurations of what is not priced are refused by name", "[cost][model]") {
  for (const auto& [json, word] : kRefused) {
    CAPTURE(json);
    CHECK_THAT(refusal(json), Contains(std::string("model type \"") + word + "\"") && Contains("llama") &&
                                  Contains("in a copy of the file"));
  }
  CHECK(std::size(kRows) + std::size(kMixed) + std::size(kRefused) == 50);
}

TEST_CASE("layer types of a listed family say which layers slide", "[cost][model]") {
  const std::string used = R"("use_sliding_window":true,"sliding_window":128,)";
  const std::string slide = "sliding", full = "full";
  const auto bytes = [&](const std::string& more) {
    return bytes_of_cache(parse_model(sample("qwen2", used + more), "config.json"), 1025);
  };
  constexpr std::uint64_t kLayerToken = 2 * 4 * 64 * 2;
  CHECK(bytes(layer_types({slide, slide, slide, slide})) == 524'288);
  CHECK(bytes(R"("max_window_layers":0,)" + layer_types({full, full, full, full})) == 4'198'400);
  CHECK(bytes(R"("max_window_layers":2)") == (2 * 1025 + 2 * 128) * kLayerToken);
  CHECK(bytes(layer_types({slide, full, slide, full})) == (2 * 1025 + 2 * 128) * kLayerToken);
  CHECK(parse_model(sample("qwen2", used + layer_types({full, slide, slide, full})), "c").window_runs() ==
        std::vector<WindowRun>{{1, 0}, {2, 128}, {1, 0}});
}

TEST_CASE("what counts one number of tokens refuses a model only some of whose layers have a window",
          "[cost][model]") {
  const std::string used = R"("use_sliding_window":true,"sliding_window":128,)";
  const auto counted = [&](const std::string& more) {
    require_equal_layers(parse_model(sample("qwen2", used + more), "config.json"), "a batch");
  };
  CHECK_THROWS_WITH(counted(R"("max_window_layers":2)"), Contains("only some have a sliding window"));
  CHECK_NOTHROW(counted(R"("max_window_layers":0)"));
}

TEST_CASE("layers without a cache are not priced as caches", "[cost][model]") {
  const std::string types = layer_types({"linear", "linear", "linear", "full"});
  CHECK_THAT(refusal(sample("some_new_type", types)), Contains("some_new_type"));
  CHECK_THAT(refusal(sample("qwen3", types)), Contains("layer 0") && Contains("layer_types"));
}

TEST_CASE("fields that change what a model takes are refused by name", "[cost][model]") {
  for (const char* field :
       {R"("moe_num_experts":64)", R"("num_experts":8)", R"("n_routed_experts":8)",
        R"("num_local_experts":8)", R"("kv_lora_rank":512)", R"("mamba_d_state":16)",
        R"("linear_num_key_heads":4)", R"("attn_layer_period":8)", R"("num_kv_shared_layers":2)",
        R"("num_nextn_predict_layers":1)", R"("attention_sink_size":4)", R"("memory_state_size":16)",
        R"("v_head_dim":32)", R"("n_shared_kv":2)", R"("auto_map":{"AutoModel":"modeling_x.XModel"})"}) {
    const std::string text = field;
    CHECK_THAT(refusal(sample("llama", text)), Contains(text.substr(1, text.find('"', 1) - 1)));
  }
  // What is about training or generation is not.
  for (const char* field : {R"("attention_dropout":0.1)", R"("unsloth_fixed":true)", R"("num_beams":4)",
                            R"("attn_logit_softcapping":50.0)", R"("_attn_implementation":"sdpa")"})
    CHECK(refusal(sample("llama", field)) == "accepted");
  for (const char* field : {R"("num_experts":null)", R"("num_experts":0)", R"("attn_layers":[])"})
    CHECK(refusal(sample("llama", field)) == "accepted");
  CHECK_THAT(refusal(sample("mixtral", R"("num_local_experts":1)")), Contains("2 of 1 experts"));
  CHECK_THAT(refusal(sample("mixtral", R"("num_experts_per_tok":9)")), Contains("num_experts_per_tok"));
  CHECK(refusal(sample("jamba", R"("num_experts":1,"attn_layer_period":2,"attn_layer_offset":1)")) ==
        "accepted");
  // Python writes this word; within a text it is one.
  CHECK(refusal(sample("llama", R"("a":[-Infinity,Infinity],"b":"\"Infinity")")) == "accepted");
  CHECK_THAT(refusal(sample("llama", R"("a":Infinit)")), Contains("not valid JSON"));
  CHECK_THAT(refusal(sample("llama", R"("rope_theta":1,"head_dim":Infinity)")), Contains("head_dim"));
  CHECK_THAT(refusal(sample("llama", R"("sliding_window":128)")), Contains("sliding_window"));
  CHECK(refusal(sample("llama", R"("sliding_window":128,"use_sliding_window":false)")) == "accepted");
}

TEST_CASE("a quantised checkpoint weighs what its scales and zeros weigh, too", "[cost][model]") {
  const auto weight_bits = [](const std::string& quantisation) {
    return parse_model(sample("llama", "\"quantization_config\":" + quantisation), "config.json").weight_bits;
  };
  // A block has 2 * 256 * 512 + 2 * 256 * 256 + 3 * 256 * 768 = 983040 parameters; its matrices have 512,
  // 256, 256 and 256 outputs of attention, 768, 768 and 256 of the MLP: 3072.
  constexpr double kBlock = 983040, kOutputs = 3072;
  CHECK(weight_bits(R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true})") ==
        4 + (16 + 4) / 128.0);
  CHECK(weight_bits(R"({"quant_method":"gptq","bits":8,"group_size":32,"desc_act":false,"sym":true})") ==
        8 + (16 + 8) / 32.0);
  CHECK(weight_bits(R"({"quant_method":"gptq","bits":4,"group_size":-1})") ==
        (4 * kBlock + (16 + 4) * kOutputs) / kBlock);
  CHECK(weight_bits(R"({"quant_method":"bitsandbytes","load_in_4bit":true})") == 4 + 32 / 64.0);
  CHECK(weight_bits(
            R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_use_double_quant":true})") ==
        4 + (8 + 32 / 256.0) / 64);
  CHECK(weight_bits(R"({"quant_method":"bitsandbytes","load_in_8bit":true})") ==
        (8 * kBlock + 32 * kOutputs) / kBlock);
  CHECK(weight_bits(R"({"quant_method":"fp8","weight_block_size":[128,128],
                        "modules_to_not_convert":["lm_head","model.layers.0.input_layernorm"]})") ==
        8 + 32 / (128.0 * 128));
  CHECK(weight_bits(R"({"quant_method":"fp8"})") == (8 * kBlock + 7 * 32) / kBlock);
  const auto compressed = [](const std::string& weights) {
    return R"({"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"group_0":{
               "targets":["Linear"],"weights":)" +
           weights + "}}}";
  };
  CHECK(weight_bits(compressed(R"({"num_bits":4,"strategy":"group","group_size":128,"symmetric":true})")) ==
        4 + 16 / 128.0);
  CHECK(weight_bits(compressed(R"({"num_bits":4,"strategy":"group","group_size":64,"symmetric":false})")) ==
        4 + (16 + 4) / 64.0);
  CHECK(weight_bits(compressed(R"({"num_bits":8,"strategy":"channel"})")) ==
        (8 * kBlock + 16 * kOutputs) / kBlock);
  const auto problem = [](const std::string& quantisation) {
    return refusal(sample("llama", "\"quantization_config\":" + quantisation));
  };
  CHECK_THAT(problem(R"({"quant_method":"hqq"})"), Contains("hqq") && Contains("--weight-bits"));
  CHECK_THAT(problem(R"({"quant_method":"awq","bits":4,"modules_to_not_convert":["mlp.down_proj"]})"),
             Contains("mlp.down_proj"));
  CHECK_THAT(problem(R"({"quant_method":"gptq","bits":0})"), Contains("bits"));
  CHECK_THAT(problem(R"({"quant_method":"bitsandbytes"})"), Contains("load_in_4bit"));
  CHECK_THAT(problem(compressed(R"({"num_bits":4,"strategy":"tensor_group"})")), Contains("tensor_group"));
}

TEST_CASE("Qwen3-4B with AWQ of 4 bits costs what its file says, unless it is told otherwise",
          "[cost][model]") {
  const Model model = parse_model(
      R"({"model_type":"qwen3","hidden_size":2560,"intermediate_size":9728,"num_attention_heads":32,
          "num_hidden_layers":36,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,
          "tie_word_embeddings":true,"quantization_config":{"quant_method":"awq","bits":4,"group_size":128}})",
      "config.json");
  // Matrices of the blocks in 4 + 20 / 128 bits; embedding, norms in 16.
  constexpr std::uint64_t kMatrices = 36 * block(2560, 4096, 1024, 9728);
  constexpr std::uint64_t kRest = 151936 * 2560ULL + 36 * (2 * 2560 + 2 * 128) + 2560;
  CHECK(weight_bytes(model, Runtime{}, 1) == kMatrices / 256 * 133 + 2 * kRest);
  CHECK(weight_bytes(model, Runtime{.weight_bits = 4.25}, 1) == kMatrices / 32 * 17 + 2 * kRest);
  CHECK(weight_bytes(model, Runtime{.weight_bits = 16}, 1) == 2 * model.parameters());
  CHECK_THAT(model.remarks, Contains("awq"));
}

TEST_CASE("the text of a model with towers says that they are not counted", "[cost][model]") {
  CHECK_THAT(parse_model(kRows[2].json, "config.json").remarks, Contains("its text model alone"));
  CHECK(parse_model(kRows[0].json, "config.json").remarks.empty());
  // Weights of the whole file are described outside of it.
  std::string nested = kRows[2].json;
  nested.insert(1, R"("quantization_config":{"quant_method":"fp8"},)");
  CHECK(parse_model(nested, "config.json").weight_bits < 8.1);
}

}  // namespace kvsim::cost::test_public_configs
