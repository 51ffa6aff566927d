// The Block Transformer's cache and throughput, by arithmetic: no checkpoint of it is needed.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace block_transformer_numbers {

constexpr std::uint64_t kTokens = 2048, kBlock = 4,
                        kPrefix = 2;  ///< context, tokens of a block, local prefix
constexpr double kMemory = 80e9, kRate = 312e12, kBandwidth = 2.0e12;

/// Layers as GPT-NeoX has them, without an embedding.
Model layers_of(std::string name, std::uint64_t layers, std::uint64_t width) {
  Model model = cache_shape(std::move(name), layers, width / 64, width / 64, 64);
  model.hidden = width;
  model.ffn = 4 * width;
  model.gated_mlp = false;
  return model;
}

double weights_of(const Model& model) {
  return 12.0 * static_cast<double>(model.layers * model.hidden * model.hidden);
}

double step_seconds(const Model& model, std::uint64_t batch, std::uint64_t past) {
  const PassTime pass = pass_time(model, ideal(kRate, kBandwidth), serve(kTokens, 1, batch), 1, past, false);
  return pass[OpClass::linear].seconds + pass[OpClass::attention].seconds;
}

/// Sequences whose caches fill what the weights leave.
std::uint64_t batch_of(double parameters, double cache) {
  return static_cast<std::uint64_t>((kMemory - 2 * parameters) / cache);
}

/// How many times the tokens per second of a vanilla model, each with as many sequences as fit.
double gain(const Model& vanilla, const Model& half) {
  const double cache = cache_bytes(vanilla, kTokens),
               blocks = cache_bytes(half, kTokens / kBlock) + cache_bytes(half, kPrefix + kBlock);
  const std::uint64_t plain = batch_of(weights_of(vanilla), cache),
                      many = batch_of(2 * weights_of(half), blocks);
  const double of_block = step_seconds(half, many, kTokens / kBlock) +
                          static_cast<double>(kBlock) * step_seconds(half, many, kPrefix + kBlock - 1);
  return static_cast<double>(many * kBlock) / of_block /
         (static_cast<double>(plain) / step_seconds(vanilla, plain, kTokens));
}

std::vector<Check> checks(Inputs&) {
  Entries entries(Evidence::derived);
  struct Size {
    const char* name;
    const char* parameters;
    std::uint64_t layers, width;
  };
  for (const Size& size : {Size{"1.2b: 12 + 12 layers of 2,048", "1208", 12, 2048},
                           Size{"800m: 8 + 8 layers of 2,048", "805", 8, 2048},
                           Size{"300m: 12 + 12 layers of 1,024", "302", 12, 1024},
                           Size{"85m: 6 + 6 layers of 768", "85", 6, 768}}) {
    const Model half = layers_of(size.name, size.layers, size.width);
    entries.exact(std::string(size.name) + ", parameters without embedding", size.parameters, "M",
                  2e-6 * static_cast<double>(size.layers * half.block_matrix_parameters()));
  }
  const Model half = layers_of("half of 1.2b", 12, 2048), whole = layers_of("24 layers of 2,048", 24, 2048);
  const double plain = cache_bytes(whole, kTokens), global = cache_bytes(half, kTokens / kBlock);
  entries.exact("a cache of 2,048 tokens, 24 layers of 2,048", "402.65", "MB", plain / kMB);
  entries.exact("the block decoder's of 1.2b", "50.33", "MB", global / kMB);
  entries.exact("the token decoder's of 1.2b, 6 tokens", "0.59", "MB",
                cache_bytes(half, kPrefix + kBlock) / kMB);
  entries.exact("read of the block decoder's cache for a token, of a plain one", "0.03125", "share",
                global / static_cast<double>(kBlock) / plain);
  const Model equal = layers_of("410m", 24, 1024);
  entries.exact("cache of 1.2b over that of 410M, of equal perplexity", "0.25", "share",
                global / cache_bytes(equal, kTokens));
  entries.subject(Subject::time);
  const char* why =
      "10 to 20 is printed; an A100's datasheet, 80 GB full of weights and caches, no embedding, no head: with so "
      "many sequences products take as long as the cache's bytes";
  entries.within({1.0 / 3, true}, "tokens per second, 1.2b over 410M, of equal perplexity", "15", "x",
                 gain(equal, half), why);
  return entries.take();
}

}  // namespace block_transformer_numbers

Source block_transformer_source() {
  return {
      "Block Transformer",
      "arXiv 2406.02657; configurations of itsnamgyu/block-transformer (17842dd), throughput of the abstract",
      {"Blocks of 4 tokens; a decoder over blocks and one within a block, with 2 tokens before it, of half "
       "of the layers each. The first runs once in 4 tokens."},
      {},
      block_transformer_numbers::checks};
}

}  // namespace kvsim::cost
