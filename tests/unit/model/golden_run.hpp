#pragma once
/// Runs a golden checkpoint's tokens on any device, collects everything that the run passes to its observer,
/// and compares it with the golden.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/model/golden_checkpoint.hpp"

namespace kvsim::model {

inline constexpr std::uint64_t kLast = 8;  // rows of logits and attention in the goldens

/// Collects everything that a run passes to its observer. The result does not depend on the division into
/// passes.
class Recorder : public RunObserver {
 public:
  Recorder(const ModelConfig& config, std::uint64_t tokens)
      : config_(config), tokens_(tokens), q(config.n_layers), k(q), v(q), rows(q), out(q) {
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer) {
      q[layer].resize(config.n_heads * tokens * config.head_dim);
      k[layer].resize(config.n_kv_heads * tokens * config.head_dim);
      v[layer].resize(config.n_kv_heads * tokens * config.value_dim());
      rows[layer].resize(config.n_heads * tokens * tokens);  // matrices of a test are small
      out[layer].resize(tokens * config.hidden_size);
    }
  }

  void on_tensors(std::uint32_t layer, std::uint64_t, std::uint64_t n, const Elements& q_in,
                  const Elements& k_in, const Elements& v_in) override {
    place(q_in, config_.n_heads, config_.head_dim, n, q[layer]);
    place(k_in, config_.n_kv_heads, config_.head_dim, n, k[layer]);
    place(v_in, config_.n_kv_heads, config_.value_dim(), n, v[layer]);
  }
  std::uint64_t first_attention_row() const override { return 0; }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override {
    for (std::uint64_t head = 0; head < config_.n_heads; ++head) {
      std::copy_n(p.data() + head * n_keys, n_keys,
                  rows[layer].data() + (head * tokens_ + position) * tokens_ + first_key);
    }
  }
  bool wants_layer_output() const override { return true; }
  void on_layer_output(std::uint32_t layer, std::span<const float> hidden) override {
    std::copy(hidden.begin(), hidden.end(), out[layer].data() + done * config_.hidden_size);
  }

  std::uint64_t done = 0;  // tokens of earlier passes

 private:
  void place(const Elements& from, std::uint64_t heads, std::uint64_t dim, std::uint64_t n,
             std::vector<float>& to) const {
    for (std::uint64_t head = 0; head < heads; ++head)
      from.subspan(head * n * dim, n * dim).store(Elem::f32, to.data() + (head * tokens_ + done) * dim);
  }
  const ModelConfig& config_;
  std::uint64_t tokens_;

 public:
  std::vector<std::vector<float>> q, k, v, rows, out;
};

struct Run {
  Recorder recorder;
  std::vector<float> logits;
};

/// Runs all tokens, `chunk` at a time.
inline Run record(ModelRun& model, const GoldenCheckpoint& golden, std::uint64_t chunk) {
  const std::vector<std::int32_t> tokens = golden.tokens();
  Run result{Recorder(golden.config, tokens.size()), {}};
  for (std::uint64_t first = 0; first < tokens.size(); first += chunk) {
    const std::uint64_t n = std::min<std::uint64_t>(chunk, tokens.size() - first);
    model.forward(std::span(tokens).subspan(first, n), result.recorder);
    result.recorder.done += n;
    const std::vector<float> logits = model.logits(n);
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
  }
  return result;
}

/// Largest difference, and the Frobenius norm of the difference over that of the expectation.
struct Difference {
  double largest = 0, relative = 0;
};
inline Difference difference(std::span<const float> got, std::span<const float> expected) {
  REQUIRE(got.size() == expected.size());
  double largest = 0, error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double delta = double{got[i]} - double{expected[i]};
    largest = std::max(largest, std::isfinite(delta) ? std::abs(delta) : 1e30);
    error += delta * delta;
    norm += double{expected[i]} * double{expected[i]};
  }
  return {largest, std::sqrt(error / norm)};
}

/// The last kLast query rows of [heads, T, T].
inline std::vector<float> last_rows(const std::vector<float>& rows, std::uint64_t heads,
                                    std::uint64_t tokens) {
  std::vector<float> last;
  for (std::uint64_t head = 0; head < heads; ++head) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>((head * tokens + tokens - kLast) * tokens);
    last.insert(last.end(), begin, begin + static_cast<std::ptrdiff_t>(kLast * tokens));
  }
  return last;
}

/// The stages of a run of all tokens that the goldens store, by name, in order of computation.
inline std::vector<std::pair<std::string, std::vector<float>>> stages(const GoldenCheckpoint& golden,
                                                                      const Run& run) {
  const std::uint64_t tokens = golden.tokens().size();
  std::vector<std::pair<std::string, std::vector<float>>> list;
  for (std::uint32_t layer = 0; layer < golden.config.n_layers; ++layer) {
    const std::string suffix = "." + std::to_string(layer);
    list.emplace_back("q" + suffix, run.recorder.q[layer]);
    list.emplace_back("k" + suffix, run.recorder.k[layer]);
    list.emplace_back("v" + suffix, run.recorder.v[layer]);
    list.emplace_back("rows" + suffix, last_rows(run.recorder.rows[layer], golden.config.n_heads, tokens));
    list.emplace_back("out" + suffix, run.recorder.out[layer]);
  }
  const auto last = static_cast<std::ptrdiff_t>(kLast * golden.config.vocab_size);
  list.emplace_back("logits", std::vector<float>(run.logits.end() - last, run.logits.end()));
  return list;
}

}  // namespace kvsim::model
