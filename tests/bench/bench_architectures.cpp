// Architectures beside the plainest one that does the same work: a mixture of 8 experts of which 4 compute a
// token beside a dense feed-forward as wide as those 4, and a trace of latent attention beside one whose
// values are stored apart, with the same products. Processor time of one thread.
#include <cstdlib>
#include <string>

#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"
#include "tests/bench/replay_cells.hpp"
#include "traces/model/cpu/cpu_run.hpp"

using namespace kvsim;
using namespace kvsim::bench;

namespace {

constexpr std::uint64_t kHidden = 1024, kExpert = 768, kKeys = 256;

model::Linear random_matrix(std::uint64_t out, std::uint64_t in, std::uint64_t seed) {
  const auto numbers = std::make_shared<std::vector<std::uint16_t>>(out * in);
  for (std::size_t i = 0; i < numbers->size(); ++i)
    (*numbers)[i] = narrow_bf16(static_cast<float>(normal(combine({seed, i})) / std::sqrt(in)));
  return {reinterpret_cast<const std::byte*>(numbers->data()), Elem::bf16, out, in, {}, {}, numbers};
}

model::GatedMlp random_mlp(std::uint64_t width, std::uint64_t seed) {
  return {random_matrix(width, kHidden, seed), random_matrix(width, kHidden, seed + 1),
          random_matrix(kHidden, width, seed + 2)};
}

/// Four layers, of which a token's feed-forwards compute 4 * kExpert numbers each.
struct RandomModel {
  explicit RandomModel(bool mixture)
      : config(model::parse_model_config(
            std::string(R"({"hidden_size":1024,"num_hidden_layers":4,"num_attention_heads":16,
              "num_key_value_heads":4,"vocab_size":1024,"max_position_embeddings":4096,"model_type":)") +
                (mixture
                     ? R"("mixtral","num_local_experts":8,"num_experts_per_tok":4,"intermediate_size":768})"
                     : R"("llama","intermediate_size":3072})"),
            "config.json")) {
    if (config.hidden_size != kHidden || config.n_kv_heads * config.head_dim != kKeys) std::abort();
    weights.head = weights.embedding = random_matrix(1024, kHidden, 1);
    weights.norm.assign(kHidden, 1);
    for (std::uint64_t layer = 0; layer < config.n_layers; ++layer) {
      model::LayerWeights& to = weights.layers.emplace_back();
      const std::uint64_t seed = 1000 * (layer + 1);
      to.attention_norm = to.mlp_norm = weights.norm;
      to.q = random_matrix(kHidden, kHidden, seed), to.o = random_matrix(kHidden, kHidden, seed + 1);
      to.k = random_matrix(kKeys, kHidden, seed + 2), to.v = random_matrix(kKeys, kHidden, seed + 3);
      if (mixture) {
        model::ExpertWeights experts;
        experts.router = random_matrix(8, kHidden, seed + 4);
        for (std::uint64_t i = 0; i < 8; ++i)
          experts.experts.push_back(random_mlp(kExpert, seed + 10 * i + 10));
        to.experts = std::make_shared<const model::ExpertWeights>(std::move(experts));
      } else {
        static_cast<model::GatedMlp&>(to) = random_mlp(4 * kExpert, seed + 10);
      }
    }
  }

  /// Runs `prompt` tokens at once and `steps` one by one.
  void run(std::size_t prompt, std::size_t steps) const {
    model::cpu::CpuRun run(config, weights, {prompt + steps, Elem::bf16, 1});
    model::RunObserver nobody;
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < prompt + steps; ++i)
      tokens.push_back(static_cast<std::int32_t>(combine({7, i}) % config.vocab_size));
    run.forward(std::span(tokens).first(prompt), nobody);
    for (std::size_t i = prompt; i < tokens.size(); ++i) run.forward(std::span(tokens).subspan(i, 1), nobody);
  }

  model::ModelConfig config;
  model::Weights weights;
};

/// One layer of one KV head of 576 and 16 query heads, whose values are the first 512 of its keys: stored
/// there alone, or again.
trace::MemoryTrace latent_trace(bool stored_once, std::uint64_t length) {
  trace::SyntheticOptions options;
  options.layers = options.kv_heads = 1;
  options.group = 16;
  options.head_dim = 576;
  options.decode = 64;
  options.prompt = length - options.decode;
  const trace::MemoryTrace made = trace::synthetic_trace(options);
  trace::Header header = made.header();
  header.model.v_head_dim = 512;
  header.model.values_in_keys = stored_once;
  trace::MemoryTrace out(std::move(header));
  for (std::uint32_t head = 0; head < options.group; ++head)
    made.read(trace::Tensor::query, 0, head, 0, length, out.rows(trace::Tensor::query, 0, head));
  const std::span<float> keys = out.rows(trace::Tensor::key, 0, 0);
  made.read(trace::Tensor::key, 0, 0, 0, length, keys);
  if (stored_once) return out;
  const std::span<float> values = out.rows(trace::Tensor::value, 0, 0);
  for (std::uint64_t token = 0; token < length; ++token)
    std::copy_n(keys.begin() + static_cast<std::ptrdiff_t>(token * 576), 512,
                values.begin() + static_cast<std::ptrdiff_t>(token * 512));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const RandomModel experts(true), dense(false);
  const auto processor = [](const auto& work) { return processor_seconds(work); };
  report("a prompt of 256 tokens: 4 of 8 experts / dense, as wide as 4",
         paired_by(
             processor, [&] { experts.run(256, 0); }, [&] { dense.run(256, 0); }, pairs));
  report("16 tokens one by one: 4 of 8 experts / dense, as wide as 4",
         paired_by(
             processor, [&] { experts.run(1, 16); }, [&] { dense.run(1, 16); }, pairs));
  const trace::MemoryTrace latent = latent_trace(true, 2048), plain = latent_trace(false, 2048);
  for (const auto& [policies, what] : {std::pair{std::vector<std::string>{"h2o"}, "1 cell (h2o 20%)"},
                                       {{"h2o", "snapkv", "keydiff", "streaming_llm"}, "4 cells, 20%"}})
    report((std::string("replay, ") + what + ": latents / keys with values apart").c_str(),
           paired_by(
               processor, [&] { run(latent, study(policies, "20%", 1)); },
               [&] { run(plain, study(policies, "20%", 1)); }, pairs));
  return 0;
}
