#include <catch2/catch.hpp>
#include <fstream>

#include "tests/unit/model/small_config.hpp"
#include "tests/unit/traces/scratch.hpp"

namespace kvsim::model::test_model_config {

using Catch::Matchers::Contains;

TEST_CASE("absent fields have the defaults of their class") {
  const ModelConfig llama = parse("", {"num_key_value_heads", "max_position_embeddings"});
  CHECK(llama.n_kv_heads == 4);
  CHECK(llama.head_dim == 16);
  CHECK(llama.max_positions == 2048);
  CHECK(llama.norm_eps == 1e-6);
  CHECK(llama.rope.theta == 10000.0);
  CHECK(llama.rope.type == "default");
  CHECK(llama.rope.rotary_dim == 16);
  CHECK_FALSE(llama.tied_embeddings.has_value());
  CHECK_FALSE(llama.qkv_bias);
  CHECK_FALSE(llama.output_bias);
  CHECK(llama.eos.empty());
  CHECK(llama.layer_window == std::vector<std::int32_t>{-1, -1, -1});

  const auto bare = [](const char* type, const char* heads) {
    return parse(std::string("\"num_attention_heads\":") + heads,
                 {"num_key_value_heads", "max_position_embeddings", "num_attention_heads"}, type);
  };
  const ModelConfig mistral = bare("mistral", "16");
  CHECK((mistral.n_kv_heads == 8 && mistral.head_dim == 4 && mistral.max_positions == 131072));
  CHECK((mistral.norm_eps == 1e-6 && mistral.layer_window[0] == 4096));
  const ModelConfig phi3 = bare("phi3", "16");
  CHECK((phi3.n_kv_heads == 16 && phi3.head_dim == 4 && phi3.max_positions == 4096));
  CHECK((phi3.norm_eps == 1e-5 && phi3.layer_window[0] == -1 && phi3.fused_qkv));
  const ModelConfig qwen2 = bare("qwen2", "32");
  CHECK((qwen2.n_kv_heads == 32 && qwen2.head_dim == 2 && qwen2.max_positions == 32768));
  const ModelConfig qwen3 = bare("qwen3", "64");
  CHECK((qwen3.n_kv_heads == 32 && qwen3.head_dim == 128 && qwen3.layer_window[0] == -1));
}

TEST_CASE("null counts as absent") {
  const ModelConfig config =
      parse(R"("head_dim":null,"rope_scaling":null,"eos_token_id":null,"quantization_config":null)");
  CHECK(config.head_dim == 16);
  // But for a field with a default it means that there is none.
  const ModelConfig mistral =
      parse(R"("num_key_value_heads":null,"sliding_window":null)", {"num_key_value_heads"}, "mistral");
  CHECK((mistral.n_kv_heads == 4 && mistral.layer_window[0] == -1));
}

TEST_CASE("head_dim is read when it is there") {
  CHECK(parse(R"("head_dim":128)").head_dim == 128);
  CHECK_THAT(problem(R"("head_dim":17)"), Contains("even"));
  CHECK_THAT(problem(R"("head_dim":0)"), Contains("outside 1..1024"));
}

TEST_CASE("eos ids: one, several, none; generation_config.json takes precedence") {
  CHECK(parse(R"("eos_token_id":2)").eos == std::vector<std::int32_t>{2});
  CHECK(parse(R"("eos_token_id":[2,7])").eos == std::vector<std::int32_t>{2, 7});
  CHECK_THAT(problem(R"("eos_token_id":257)"), Contains("outside 0..256"));
  CHECK_THAT(problem(R"("eos_token_id":"</s>")"), Contains("expected an integer"));

  const test::Scratch scratch;
  std::ofstream(scratch.file("config.json")) << config_text(R"("eos_token_id":2)");
  CHECK(load_model_config(scratch.file("")).eos == std::vector<std::int32_t>{2});
  std::ofstream(scratch.file("generation_config.json")) << R"({"eos_token_id":[3,4]})";
  CHECK(load_model_config(scratch.file("")).eos == std::vector<std::int32_t>{3, 4});
}

TEST_CASE("each family's biases and norms") {
  const ModelConfig llama = parse(R"("attention_bias":true,"mlp_bias":true)");
  CHECK((llama.qkv_bias && llama.output_bias && llama.mlp_bias && !llama.qk_norm));
  const ModelConfig qwen2 = parse("", {}, "qwen2");
  CHECK((qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm));
  const ModelConfig qwen3 = parse("", {}, "qwen3");
  CHECK((!qwen3.qkv_bias && !qwen3.output_bias && qwen3.qk_norm));
  CHECK_THAT(problem(R"("attention_bias":true)", {}, "mistral"), Contains("attention_bias"));
  CHECK_THAT(problem(R"("mlp_bias":true)", {}, "qwen2"), Contains("mlp_bias"));
  const ModelConfig biased = parse(R"("attention_bias":true)", {}, "qwen3");
  CHECK((biased.qkv_bias && biased.output_bias && !biased.mlp_bias && biased.qk_norm));
  const ModelConfig phi3 = parse(R"("attention_bias":false,"mlp_bias":false)", {}, "phi3");
  CHECK((!phi3.qkv_bias && !phi3.output_bias && !phi3.mlp_bias && !phi3.qk_norm && phi3.fused_qkv));
  for (const char* field : {"attention_bias", "mlp_bias"})
    CHECK_THAT(problem(std::string("\"") + field + "\":true", {}, "phi3"), Contains(field));
}

TEST_CASE("sliding windows by family") {
  using Windows = std::vector<std::int32_t>;
  const std::string used = R"("sliding_window":7,"use_sliding_window":true)";
  const std::string mixed = R"("layer_types":["sliding_attention","full_attention","sliding_attention"])";
  const std::string full = R"("layer_types":["full_attention","full_attention","full_attention"])";
  for (const char* type : {"mistral", "phi3"}) {
    CHECK(parse(R"("sliding_window":7)", {}, type).layer_window == Windows{7, 7, 7});
    CHECK(parse(R"("sliding_window":null)", {}, type).layer_window == Windows{-1, -1, -1});
    CHECK(parse("\"sliding_window\":null," + full, {}, type).layer_window == Windows{-1, -1, -1});
    CHECK_THAT(problem("\"sliding_window\":7," + mixed, {}, type),
               Contains("layer 1") && Contains("a window is set"));
  }
  for (const char* type : {"qwen2", "qwen3"}) {
    // Qwen files name a window without using it.
    CHECK(parse(R"("sliding_window":7,"use_sliding_window":false,"max_window_layers":0)", {}, type)
              .layer_window == Windows{-1, -1, -1});
    CHECK(parse(R"("sliding_window":7,"max_window_layers":0)", {}, type).layer_window == Windows{-1, -1, -1});
    CHECK(parse(used + R"(,"max_window_layers":2)", {}, type).layer_window == Windows{-1, -1, 7});
    CHECK(parse(R"("use_sliding_window":true,"max_window_layers":1)", {}, type).layer_window ==
          Windows{-1, 4096, 4096});
    CHECK(parse(used, {}, type).layer_window == Windows{-1, -1, -1});  // the first windowed layer would be 28
    CHECK(parse(R"("sliding_window":null,"use_sliding_window":true,"max_window_layers":0)", {}, type)
              .layer_window == Windows{-1, -1, -1});
    CHECK(parse(used + ",\"max_window_layers\":3," + mixed, {}, type).layer_window == Windows{7, -1, 7});
    CHECK(parse(used + ",\"max_window_layers\":0," + full, {}, type).layer_window == Windows{-1, -1, -1});
    CHECK_THAT(problem("\"use_sliding_window\":false," + mixed, {}, type), Contains("no window in use"));
    CHECK_THAT(problem(used + R"(,"layer_types":["full_attention"])", {}, type),
               Contains("lists 1 layers of 3"));
    CHECK_THAT(
        problem(used + R"(,"layer_types":["full_attention","chunked_attention","full_attention"])", {}, type),
        Contains("layer 1"));
    CHECK_THAT(problem(used + R"(,"layer_types":"full_attention")", {}, type), Contains("layer_types"));
  }
  CHECK(parse(full).layer_window == Windows{-1, -1, -1});
  CHECK_THAT(problem(R"("sliding_window":7)"), Contains("no sliding window"));
  // A window that is off is no window.
  CHECK(parse(R"("sliding_window":7,"use_sliding_window":false)").layer_window == Windows{-1, -1, -1});
  CHECK_THAT(problem(R"("sliding_window":7,"use_sliding_window":true)"), Contains("no sliding window"));
  for (const char* value : {"0", "-1", "7.5", "2147483648", "\"7\"", "true"}) {
    INFO(value);
    CHECK(problem(std::string("\"sliding_window\":") + value, {}, "phi3") != "accepted");
  }
}

TEST_CASE("Gemma 3 rotates windows and full layers apart, as either version of transformers writes it") {
  const std::string common =
      R"("num_hidden_layers":6,"sliding_window":512,"head_dim":8,"hidden_activation":"gelu_pytorch_tanh",)";
  const ModelConfig older = parse(common + R"("rope_theta":1e5,"rope_local_base_freq":5000,
      "rope_scaling":{"rope_type":"linear","factor":8},"query_pre_attn_scalar":8)",
                                  {"num_hidden_layers"}, "gemma3_text");
  const ModelConfig newer = parse(common + R"("query_pre_attn_scalar":32,"rope_parameters":{
      "full_attention":{"rope_type":"linear","rope_theta":1e5,"factor":8},
      "sliding_attention":{"rope_type":"default","rope_theta":5000}})",
                                  {"num_hidden_layers"}, "gemma3_text");
  for (const ModelConfig& model : {older, newer}) {
    CHECK(model.layer_window == std::vector<std::int32_t>{512, 512, 512, 512, 512, -1});
    CHECK((model.rotates_apart(4) && !model.rotates_apart(5)));
    CHECK((model.rope.theta == 1e5 && model.rope.type == "linear" && model.rope.factor == 8));
    CHECK((model.other_rope->theta == 5000 && model.other_rope->type == "default"));
    CHECK((model.norms_from_one && model.activation == Activation::gelu_tanh && model.norms == kNormsAround &&
           model.needs_processor()));
  }
  CHECK(older.attention_scale == 0);  // the usual one
  CHECK(newer.attention_scale == 1 / std::sqrt(32.0));
  const ModelConfig absent = parse(R"("num_hidden_layers":6)", {"num_hidden_layers"}, "gemma3_text");
  CHECK((absent.rope.theta == 1e6 && absent.other_rope->theta == 1e4 && absent.layer_window[0] == 4096));
  CHECK((absent.attention_cap == 0 && absent.logit_cap == 0));
  CHECK_THAT(problem(R"("use_bidirectional_attention":true)", {}, "gemma3_text"), Contains("bidirectional"));
}

TEST_CASE("layers without rotation, and windows that rotate otherwise") {
  const auto rotations = [](const ModelConfig& model) {
    std::string out;
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
      const RopeConfig& rope = model.rope_of(layer);
      out += rope.type == "none" ? '-' : rope.type == "default" ? 'd' : rope.type[0];
    }
    return out;
  };
  const auto four = [](const std::string& changes, const char* type) {
    return parse("\"num_hidden_layers\":4" + (changes.empty() ? "" : "," + changes), {"num_hidden_layers"},
                 type);
  };
  CHECK(rotations(four("", "llama")) == "dddd");
  CHECK(rotations(four("", "smollm3")) == "ddd-");
  CHECK(rotations(four(R"("no_rope_layer_interval":2)", "smollm3")) == "d-d-");
  CHECK(rotations(four(R"("no_rope_layers":[0,1,1,0])", "smollm3")) == "-dd-");
  CHECK(rotations(four("", "exaone4")) == "ddd-");
  CHECK(rotations(four(R"("sliding_window":null)", "exaone4")) == "dddd");
  CHECK(rotations(four("", "cohere2")) == "ddd-");
  CHECK(rotations(four(R"("sliding_window":null)", "cohere2")) == "----");
  // Layers that rotate alike have one rotation, and no rotation is one, too.
  CHECK_FALSE(four(R"("no_rope_layers":[1,1,1,1])", "smollm3").other_rope);
  const ModelConfig none = four(R"("no_rope_layers":[0,0,0,0])", "smollm3");
  CHECK((!none.other_rope && rope_frequencies(none.rope, 100) == std::vector<float>(8)));
  CHECK_THAT(problem(R"("no_rope_layers":[1,0])", {}, "smollm3"), Contains("lists 2 layers of 3"));
  CHECK_THAT(problem(R"("no_rope_layers":[1,0,2])", {}, "smollm3"), Contains("no_rope_layers"));
  CHECK_THAT(problem(R"("no_rope_layers":[1,0,1])"), Contains("no_rope_layers"));

  // OLMo 3: as published, and as transformers 5 writes it.
  const std::string yarn = R"("rope_type":"yarn","factor":8,"original_max_position_embeddings":64)";
  const ModelConfig older = four(R"("rope_theta":3e5,"rope_scaling":{)" + yarn + "}", "olmo3");
  const ModelConfig newer = four(R"("rope_parameters":{"full_attention":{"rope_theta":3e5,)" + yarn +
                                     R"(},"sliding_attention":{"rope_type":"default","rope_theta":3e5}})",
                                 "olmo3");
  for (const ModelConfig& model : {older, newer}) {
    CHECK(rotations(model) == "dddy");
    CHECK((model.rope.theta == 3e5 && model.rope.factor == 8 && model.rope.attention_factor > 1));
    CHECK((model.other_rope->theta == 3e5 && model.other_rope->attention_factor == 1));
  }
  CHECK_FALSE(four("", "olmo3").other_rope);  // both kinds of layers rotate by 500,000

  // Bases of classes.
  for (const auto& [type, theta] :
       {std::pair{"cohere", 5e5}, {"cohere2", 1e4}, {"mixtral", 1e6}, {"olmo3", 5e5}, {"smollm3", 2e6}})
    CHECK(four("", type).rope.theta == theta);
}

TEST_CASE("parts of a head that rotate, as pairs stand side by side") {
  for (const char* type : {"glm", "glm4"}) {
    CHECK(parse("", {}, type).rope.rotary_dim == 64);  // half of 128
    CHECK(parse(R"("partial_rotary_factor":0.25)", {}, type).rope.rotary_dim == 32);
    CHECK(parse("", {}, type).interleaved);
  }
  CHECK_THAT(problem(R"("partial_rotary_factor":0.5)", {}, "smollm3"), Contains("partial rotary"));
}

TEST_CASE("Command-R: scaled logits, norms that subtract the mean, halves beside each other") {
  const ModelConfig plain = parse("", {}, "cohere");
  CHECK((plain.parallel && plain.centred_norms && plain.interleaved && !plain.qk_norm));
  CHECK((plain.logit_divisor == 16 && plain.norm_eps == 1e-5 && plain.norms_per_block() == 1));
  const ModelConfig plus =
      parse(R"("use_qk_norm":true,"logit_scale":0.5,"layer_norm_eps":1e-6)", {}, "cohere");
  CHECK((plus.qk_norm && plus.wide_qk_norm && plus.logit_divisor == 2 && plus.norm_eps == 1e-6));
  // Command-R7B as published says what its class does anyway.
  const std::string published =
      R"("layer_switch":3,"order_of_interleaved_layers":"local_attn_first","use_parallel_block":true,
         "rotary_pct":1.0,"position_embedding_type":"rope_gptj","use_embedding_sharing":true)";
  CHECK(parse(published, {}, "cohere2").layer_window == std::vector<std::int32_t>{4096, 4096, -1});
  CHECK(parse(published + R"(,"layer_types":["sliding_attention","full_attention","full_attention"])", {},
              "cohere2")
            .layer_window == std::vector<std::int32_t>{4096, -1, -1});
  CHECK_THAT(problem(R"("use_parallel_block":false)", {}, "cohere2"), Contains("one behind the other"));
  CHECK_THAT(problem(R"("order_of_interleaved_layers":"global_attn_first")", {}, "cohere2"),
             Contains("only windows first"));
}

TEST_CASE("logits are capped where the class knows the fields") {
  const ModelConfig gemma2 = parse("", {}, "gemma2");
  CHECK((gemma2.attention_cap == 50 && gemma2.logit_cap == 30 && gemma2.needs_processor()));
  const ModelConfig none =
      parse(R"("attn_logit_softcapping":null,"final_logit_softcapping":null)", {}, "gemma2");
  CHECK((none.attention_cap == 0 && none.logit_cap == 0));
  const std::string given = R"("attn_logit_softcapping":20,"final_logit_softcapping":10)";
  for (const char* type : {"gemma2", "gemma3_text"})
    CHECK((parse(given, {}, type).attention_cap == 20 && parse(given, {}, type).logit_cap == 10));
  CHECK(parse(R"("sliding_window":8,"sliding_window_size":8)", {}, "gemma2").layer_window[0] == 8);
  CHECK_THAT(problem(R"("sliding_window":8,"sliding_window_size":9)", {}, "gemma2"), Contains("differs"));
  CHECK_THAT(problem(given, {}, "mistral"), Contains("attn_logit_softcapping"));
  CHECK_THAT(problem(R"("attn_logit_softcapping":0)", {}, "gemma2"), Contains("attn_logit_softcapping"));
}

TEST_CASE("gpt-oss: sinks, experts of its own, a rotation that the file must say") {
  const std::string yarn = R"("rope_scaling":{"rope_type":"yarn","factor":32,"truncate":false,)"
                           R"("original_max_position_embeddings":4096})";
  const ModelConfig plain =
      parse(yarn + R"(,"initial_context_length":4096,"num_local_experts":32)", {}, "gpt_oss");
  CHECK((plain.sinks && plain.qkv_bias && plain.output_bias && plain.needs_processor()));
  CHECK((plain.experts.count == 32 && plain.experts.normalised && plain.experts.biased));
  CHECK((plain.experts.limit == 7 && plain.experts.gain == 1.702F));
  CHECK((plain.rope.theta == 150000 && !plain.rope.truncate));
  CHECK(plain.layer_window == std::vector<std::int32_t>{128, -1, 128});
  CHECK(parse(yarn + R"(,"swiglu_limit":5)", {}, "gpt_oss").experts.limit == 5);
  CHECK_THAT(problem("", {}, "gpt_oss"), Contains("rope_parameters") && Contains("is required"));
}

TEST_CASE("DeepSeek: one cached vector, which is key and value, and routers of groups") {
  const ModelConfig v2 = parse(R"("num_experts_per_tok":6)", {}, "deepseek_v2");
  CHECK((v2.n_kv_heads == 1 && v2.head_dim == 576 && v2.value_dim() == 512 && v2.rope.rotary_dim == 64));
  CHECK(v2.attention_scale == 1 / std::sqrt(192.0));
  CHECK((v2.interleaved && v2.needs_processor() && v2.latent.query_rank == 1536));
  CHECK((v2.experts.groups == 0 && !v2.experts.normalised && v2.experts.scale == 1));
  CHECK(parse(R"("num_experts_per_tok":6,"q_lora_rank":null)", {}, "deepseek_v2").latent.query_rank == 0);
  const std::string grouped = R"("num_experts_per_tok":6,"topk_method":"group_limited_greedy","n_group":8,)";
  CHECK(parse(grouped + R"("topk_group":3)", {}, "deepseek_v2").experts.used_groups == 3);
  CHECK_THAT(problem(grouped + R"("topk_group":9)", {}, "deepseek_v2"), Contains("topk_group"));
  const ModelConfig v3 = parse("", {}, "deepseek_v3");
  CHECK((v3.experts.corrected && v3.experts.normalised && v3.experts.groups == 8 &&
         v3.experts.used_groups == 4));
  CHECK(v3.experts.scale == 2.5F);
  CHECK_FALSE(parse(R"("rope_interleave":false)", {}, "deepseek_v3").interleaved);
  CHECK_THAT(problem(R"("n_group":7)", {}, "deepseek_v3"), Contains("do not make 7 groups"));
  CHECK_THAT(problem(R"("scoring_func":"softmax")", {}, "deepseek_v3"), Contains("expected sigmoid"));
  CHECK_THAT(problem(R"("topk_method":"best")", {}, "deepseek_v3"), Contains("does not know \"best\""));
  // By the square of the temperature that mscale_all_dim says, the products grow.
  const ModelConfig yarn = parse(R"("rope_scaling":{"type":"yarn","factor":40,"mscale":1,"mscale_all_dim":1,)"
                                 R"("original_max_position_embeddings":4096})",
                                 {}, "deepseek_v3");
  const double temperature = 0.1 * std::log(40.0) + 1;
  CHECK(yarn.rope.attention_factor == Approx(1));
  CHECK(yarn.attention_scale == Approx(temperature * temperature / std::sqrt(192.0)));
}

TEST_CASE("GPT-NeoX rotates a quarter, and its halves read one stream") {
  const auto neox = [](const std::string& changes) {
    return parse(changes, {"num_key_value_heads"}, "gpt_neox");
  };
  const ModelConfig plain = neox("");
  CHECK((plain.parallel && plain.norms == kNormsBefore && plain.layer_norm && plain.centred_norms));
  CHECK((plain.fused_qkv && plain.qkv_bias && plain.output_bias && plain.mlp_bias && !plain.gated_mlp));
  CHECK((plain.n_kv_heads == 4 && plain.norm_eps == 1e-5 && plain.activation == Activation::gelu));
  CHECK((plain.rope.rotary_dim == 4 && plain.rope.theta == 1e4 && plain.needs_processor()));
  // Pythia's fields, and those of transformers 5.
  for (const char* half : {R"("rotary_pct":0.5,"rotary_emb_base":500)",
                           R"("rope_parameters":{"partial_rotary_factor":0.5,"rope_theta":500})"})
    CHECK((neox(half).rope.rotary_dim == 8 && neox(half).rope.theta == 500));
  CHECK_FALSE(neox(R"("use_parallel_residual":false)").parallel);
  const ModelConfig unbiased = neox(R"("attention_bias":false)");
  CHECK((!unbiased.qkv_bias && !unbiased.output_bias && unbiased.mlp_bias));
  CHECK(neox(R"("hidden_act":"gelu_fast")").activation == Activation::gelu_tanh);
  CHECK_THAT(problem(R"("hidden_act":"silu")", {}, "gpt_neox"),
             Contains("\"silu\" is not supported, only gelu, relu"));
}

TEST_CASE("OPT looks positions up and rotates nothing") {
  const ModelConfig plain = parse("", {}, "opt");
  CHECK((plain.learned_positions == 130 && plain.rope.type == "none" && plain.rope.rotary_dim == 0));
  CHECK(rope_frequencies(plain.rope, 100).empty());
  CHECK((plain.activation == Activation::relu && plain.layer_norm && !plain.norms_of_sums));
  CHECK((plain.qkv_bias && plain.output_bias && plain.mlp_bias && plain.needs_processor()));
  CHECK(plain.tied_by_default);
  const ModelConfig behind = parse(
      R"("do_layer_norm_before":false,"enable_bias":false,"activation_function":"gelu","layer_norm_eps":0.5)",
      {}, "opt");
  CHECK((behind.norms_of_sums &&
         behind.norms == NormNames{nullptr, kNormsBefore[0], nullptr, kNormsBefore[2]}));
  CHECK((!behind.qkv_bias && !behind.output_bias && !behind.mlp_bias));
  CHECK((behind.activation == Activation::gelu && behind.norm_eps == 1e-5));
  for (const char* field : {R"("word_embed_proj_dim":32)", R"("layer_norm_elementwise_affine":false)",
                            R"("_remove_final_layer_norm":true)", R"("activation_function":"silu")"}) {
    const std::string text = field;
    CHECK_THAT(problem(text, {}, "opt"), Contains(text.substr(1, text.find("\":") - 1)));
  }
}

TEST_CASE("Llama 4: chunks, layers that see everything and do not rotate, experts that read scaled inputs") {
  using Windows = std::vector<std::int32_t>;
  const ModelConfig plain = parse(R"("num_hidden_layers":5)", {"num_hidden_layers"}, "llama4_text");
  CHECK(plain.layer_window == Windows{8192, 8192, 8192, -1, 8192});
  CHECK(
      (plain.chunked && plain.qk_norm && plain.bare_qk_norm && plain.interleaved && plain.needs_processor()));
  CHECK((plain.rotates(0) && !plain.rotates(3) && plain.rope.theta == 5e5));
  CHECK((plain.temperature_floor == 8192 && plain.temperature_scale == 0.1));
  CHECK((plain.intermediate_size == 16384 && plain.experts.width == 96 && plain.experts.shared_width == 96));
  CHECK((plain.experts.count == 16 && plain.experts.used == 1 && plain.experts.scaled_inputs));
  CHECK(plain.kinds.size() == 1);
  // As published: an empty list is none.
  const ModelConfig given = parse(
      R"("no_rope_layers":[],"moe_layers":[1],"attention_chunk_size":12,"attn_temperature_tuning":false,
         "use_qk_norm":false,"intermediate_size_mlp":32,"for_llm_compressor":false)",
      {}, "llama4_text");
  CHECK((given.layer_window == Windows{12, 12, 12} && given.temperature_floor == 0 && !given.qk_norm));
  CHECK((given.kinds.size() == 3 && given.kinds[1].mlp == LayerKind::Mlp::experts));
  const std::string types = R"("layer_types":["full_attention","chunked_attention","full_attention"])";
  const ModelConfig listed =
      parse(types + R"(,"no_rope_layers":[1,0,1],"interleave_moe_layer_step":2)", {}, "llama4_text");
  CHECK((listed.layer_window == Windows{-1, 8192, -1} && listed.rotates(0) && !listed.rotates(1)));
  CHECK(listed.kinds[0].mlp == LayerKind::Mlp::dense);
  CHECK_THAT(problem(R"("attention_chunk_size":null)", {}, "llama4_text"), Contains("within chunks"));
  CHECK_THAT(
      problem(R"("layer_types":["sliding_attention","full_attention","full_attention"])", {}, "llama4_text"),
      Contains("chunked_attention"));
  CHECK_THAT(problem(R"("no_rope_layers":[1])", {}, "llama4_text"), Contains("lists 1 layers of 3"));
  // Beside a tower of images.
  const ModelConfig inner = parse_model_config(
      R"({"model_type":"llama4","architectures":["Llama4ForConditionalGeneration"],"vision_config":{"a":1},)"
      R"("text_config":)" +
          config_text("", {}, "llama4_text") + "}",
      "config.json");
  CHECK((inner.text_only && inner.chunked && inner.architecture == "Llama4ForConditionalGeneration"));
  CHECK_THAT(problem(R"("text_config":{})", {}, "llama4"), Contains("model_type"));
}

TEST_CASE("what kvsim does not compute is refused by name") {
  CHECK_THAT(problem("", {}, "gptj"),
             Contains("\"gptj\"") &&
                 Contains("gpt_neox, gpt_oss, granite, kimi_k2, llama, llama4_text, mistral, mixtral, "
                          "olmo2, olmo3, olmoe, opt, phi3, qwen2, qwen2_moe, qwen3, "
                          "qwen3_moe, smollm3"));
  CHECK_THAT(problem("", {}, "lama"), Contains("Did you mean llama or llama4_text?"));
  CHECK_THAT(problem("", {"model_type"}), Contains("missing \"model_type\""));
  CHECK_THAT(problem(R"("quantization_config":{"quant_method":"awq","bits":4})"), Contains("quantised by"));
  CHECK_THAT(problem(R"("num_local_experts":8)"), Contains("no experts"));
  CHECK_THAT(problem(R"("num_experts":8)"), Contains("no experts"));
  for (const char* type : {"llama", "phi3"})
    CHECK_THAT(problem(R"("auto_map":{"AutoModel":"x.y"})", {}, type), Contains("own model code"));
  // Phi-3 files name classes that transformers itself contains.
  const std::string phi3 =
      R"("auto_map":{"AutoConfig":"configuration_phi3.Phi3Config","AutoModelForCausalLM":"modeling_phi3.Phi3ForCausalLM"})";
  CHECK(problem(phi3, {}, "phi3") == "accepted");
  CHECK_THAT(problem(phi3), Contains("own model code"));
  // Phi-4-mini's file.
  CHECK(problem(R"("auto_map":{"AutoConfig":"configuration_phi3.Phi3Config","AutoTokenizer":"Xenova/gpt-4o"},
                   "full_attn_mod":1,"interpolate_factor":1,"lm_head_bias":false)",
                {}, "phi3") == "accepted");
  CHECK_THAT(problem(R"("auto_map":[])", {}, "phi3"), Contains("auto_map"));
  CHECK_THAT(problem(R"("auto_map":{"AutoConfig":7})", {}, "phi3"), Contains("own model code"));
  CHECK_THAT(problem(R"("n_routed_experts":8)"), Contains("no experts"));
  CHECK_THAT(problem(R"("moe_num_experts":64)"), Contains("no experts"));
  CHECK_THAT(problem(R"("linear_num_key_heads":4)"), Contains("linear attention"));
  CHECK_THAT(problem(R"("hidden_act":"gelu")"), Contains("\"gelu\""));
}

TEST_CASE("shapes are bounded and consistent") {
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    CHECK_THAT(problem("", {field}), Contains(std::string("missing \"") + field));
    for (const char* value :
         {"0", "-4", "4.0", "1e3", "\"4\"", "18446744073709551615", "99999999999999999999"}) {
      INFO(field << " = " << value);
      CHECK(problem(std::string("\"") + field + "\":" + value, {field}) != "accepted");
    }
  }
  CHECK_THAT(problem(R"("num_key_value_heads":3)", {"num_key_value_heads"}), Contains("evenly"));
  CHECK_THAT(problem(R"("hidden_size":66)", {"hidden_size"}), Contains("gives none"));
  CHECK_THAT(problem(R"("vocab_size":258)"), Contains("occurs twice"));
  CHECK_THAT(problem(R"("rms_norm_eps":"tiny")"), Contains("expected a number"));
  CHECK_THROWS_WITH(parse_model_config("[]", "config.json"), Contains("expected a JSON object"));
}

}  // namespace kvsim::model::test_model_config
