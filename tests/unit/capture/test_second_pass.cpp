// The second pass over a prompt, against one run of prompt and pass together whose rows are cut to what
// counts.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "sim/base/error.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/capture/prompt_run.hpp"
#include "traces/capture/second_pass.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/cpu/layer_halves.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::capture::test_second_pass {
namespace {

using Ids = std::vector<std::int32_t>;

struct Sample {
  std::string folder = test::source_folder() + "/traces/sample/model";
  model::ModelConfig config = model::load_model_config(folder);
  model::Checkpoint checkpoint{folder};  // whose memory the weights are
  model::Weights weights = model::load_weights(checkpoint, config);
  Prompt prompt{{}, model::load_tokenizer(folder), {}};

  trace::MemoryTrace run() const {
    Progress progress;
    return run_prompt(prompt, config, weights,
                      {.model_dir = folder, .positions = prompt.ids.size() + 100, .threads = 1}, progress);
  }
  /// Lets tokens enter with what is learned of their position, too, as OPT's do.
  void learn_positions(std::uint64_t n) {
    for (std::uint64_t i = 0; i < n * config.hidden_size; ++i)
      positions.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
    config.learned_positions = n;
    weights.positions.data = reinterpret_cast<const std::byte*>(positions.data());
    weights.positions.out = n;
    weights.positions.in = config.hidden_size;
  }
  std::vector<float> positions{};  ///< [2 + position, hidden_size]; empty: none are learned
  Ids encode(const std::string& text) const { return prompt.tokenizer->encode(text, false); }
  SecondPass pass(const trace::Sequence& sequence, std::uint64_t chunk, unsigned threads = 1) const {
    Progress progress;
    return second_pass(sequence, *prompt.tokenizer, config, weights,
                       {.positions = sequence.length() + 100,
                        .prefill_chunk = 16,
                        .repeat_chunk = chunk,
                        .threads = threads,
                        .queries = true},
                       progress);
  }
};

/// Keeps queries, whole attention rows, and what leaves each layer.
struct Rows final : model::RunObserver {
  Rows(const Sample& sample, std::uint64_t first) : sample_(sample), first_(first) {}
  std::uint64_t first_attention_row() const override { return first_; }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t, std::uint64_t n_keys,
                    std::span<const float> p) override {
    for (std::uint64_t head = 0; head < sample_.config.n_heads; ++head)
      rows[{layer, head, position}].assign(p.begin() + static_cast<std::ptrdiff_t>(head * n_keys),
                                           p.begin() + static_cast<std::ptrdiff_t>((head + 1) * n_keys));
  }
  void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t n, const Elements& q, const Elements&,
                  const Elements&) override {
    q.store(Elem::f32, queries.emplace_back(sample_.config.n_heads * n * sample_.config.head_dim).data());
  }
  bool wants_layer_output() const override { return true; }
  void on_layer_output(std::uint32_t, std::span<const float> hidden) override {
    outputs.emplace_back(hidden.begin(), hidden.end());
  }
  std::vector<std::vector<float>> queries;  ///< per layer: [n_heads, tokens, head_dim]
  std::map<std::array<std::uint64_t, 3>, std::vector<double>> rows;
  std::vector<std::vector<float>> outputs;

 private:
  const Sample& sample_;
  std::uint64_t first_;
};

/// Feeds prompt and request in one pass; adds what counts of the rows behind the prompt.
void add_slowly(const Sample& sample, const Ids& prompt, const Ids& fed, std::uint64_t template_end,
                std::uint64_t begin, std::uint64_t end, SecondPass& out) {
  Ids all = prompt;
  all.insert(all.end(), fed.begin(), fed.end());
  model::cpu::CpuRun run(sample.config, sample.weights,
                         {.capacity = prompt.size() + 100 + fed.size(), .threads = 1});
  Rows seen(sample, prompt.size());
  run.forward(all, seen);
  Workers workers(1);
  for (std::uint32_t layer = 0; layer < sample.config.n_layers; ++layer) {
    std::vector<float> hidden, entering, scratch;
    if (layer > 0) hidden = seen.outputs[layer - 1];
    for (std::size_t t = 0; layer == 0 && t < all.size(); ++t) {
      const float* row = sample.weights.embedding.rows(static_cast<std::uint64_t>(all[t]), 1, scratch);
      for (std::size_t c = 0; c < sample.config.hidden_size; ++c)
        hidden.push_back(
            sample.config.embedding_scale * row[c] +
            (sample.positions.empty() ? 0 : sample.positions[(t + 2) * sample.config.hidden_size + c]));
    }
    model::cpu::enter_half(workers, sample.config, sample.weights.layers[layer].attention_norm, hidden,
                           all.size(), entering);
    const std::size_t dim = sample.config.head_dim, heads = sample.config.n_heads,
                      rows = out.queries.size() / (sample.config.n_layers * heads * dim);
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t j = begin; j < end; ++j)
        std::copy_n(seen.queries[layer].begin() +
                        static_cast<std::ptrdiff_t>((head * all.size() + all.size() - (end - j)) * dim),
                    dim,
                    out.queries.begin() + static_cast<std::ptrdiff_t>(
                                              ((layer * heads + head) * rows + j - template_end) * dim));
    for (std::uint64_t head = 0; head < sample.config.n_heads; ++head)
      for (std::uint64_t t = prompt.size(); t < all.size(); ++t) {
        const std::vector<double>& row = seen.rows.at({layer, head, t});
        double sum = 0, squares = 0;
        for (std::uint64_t j = 0; j <= t; ++j)
          if (j < template_end || (j >= begin && j < end) || j >= prompt.size()) sum += row[j];
        for (std::size_t c = 0; c < sample.config.hidden_size; ++c)
          squares += std::pow(static_cast<double>(entering[t * sample.config.hidden_size + c]), 2);
        for (std::uint64_t j = begin; j < end; ++j) {
          const std::size_t at = (layer * sample.config.n_heads + head) * prompt.size() + j;
          out.attention[at] = std::max(out.attention[at], static_cast<float>(row[j] / sum));
          out.scaled[at] = std::max(out.scaled[at], static_cast<float>(row[j] / sum / std::sqrt(squares)));
        }
      }
  }
}

/// `rows`: tokens that are repeated.
SecondPass empty(const Sample& sample, std::size_t prompt, std::size_t rows) {
  SecondPass out{prompt, sample.config.n_heads / sample.config.n_kv_heads, {}, {}};
  out.attention.assign(std::size_t{sample.config.n_layers} * sample.config.n_heads * prompt, 0);
  out.scaled = out.attention;
  out.queries.resize(std::size_t{sample.config.n_layers} * sample.config.n_heads * rows *
                     sample.config.head_dim);
  return out;
}

void compare(const SecondPass& got, const SecondPass& expected) {
  CHECK(got.prompt == expected.prompt);
  CHECK(got.group == expected.group);
  REQUIRE(got.attention.size() == expected.attention.size());
  double largest = 0;
  for (std::size_t i = 0; i < got.attention.size(); ++i) {
    largest = std::max(largest, static_cast<double>(got.attention[i]));
    if (std::abs(got.attention[i] - expected.attention[i]) > 1e-4F) FAIL("attention " << i);
    if (std::abs(got.scaled[i] - expected.scaled[i]) > 1e-4F * (1 + expected.scaled[i])) FAIL("scaled " << i);
  }
  CHECK(largest > 0.1);
  REQUIRE(got.queries.size() == expected.queries.size());
  for (std::size_t i = 0; i < got.queries.size(); ++i)
    if (std::abs(got.queries[i] - expected.queries[i]) > 1e-4F * (1 + std::abs(expected.queries[i])))
      FAIL("query " << i);
}

/// Without what was not to be repeated.
SecondPass repeated(SecondPass pass) {
  std::ranges::replace(pass.attention, kAlwaysKept, 0.0F);
  std::ranges::replace(pass.scaled, kAlwaysKept, 0.0F);
  return pass;
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids out;
  for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

Ids slice(const Ids& ids, std::size_t begin, std::size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

TEST_CASE("a prompt is repeated at once or in chunks, and cut where it is asked for") {
  Sample sample;
  sample.prompt.ids =
      sample.encode("The pass key is 4711. The grass is green. The sky is blue. What is the pass key?");
  const trace::MemoryTrace trace = sample.run();
  const Ids& ids = sample.prompt.ids;
  const Ids first = sample.encode("\n\nRepeat the previous context exactly."), line = sample.encode("\n");
  const Ids further = sample.encode("\n\nRepeat the part of the previous context exactly, starting with ");
  {
    SecondPass expected = empty(sample, ids.size(), ids.size());
    add_slowly(sample, ids, joined({first, line, ids}), 0, 0, ids.size(), expected);
    compare(sample.pass(trace::Sequence(trace), 2000), expected);
  }
  {
    const std::size_t cut = ids.size() - 5, half = 9;
    const Ids before = slice(ids, 0, cut);
    SecondPass expected = empty(sample, cut, cut);
    for (std::size_t begin = 0; begin < cut; begin += half) {
      const std::size_t end = std::min(cut, begin + half);
      const Ids asks = begin == 0 ? first : joined({further, slice(ids, begin - 8, begin)});
      add_slowly(sample, before, joined({asks, line, slice(ids, begin, end)}), 0, begin, end, expected);
    }
    const trace::Sequence sequence(trace, 0, {trace::Cut::At::position, cut});
    const SecondPass got = sample.pass(sequence, half);
    compare(got, expected);
    const SecondPass again = sample.pass(sequence, half, 3);
    CHECK(got.attention == again.attention);
    CHECK(got.scaled == again.scaled);
    CHECK(got.queries == again.queries);
  }
}

TEST_CASE("what enters the first layer has a learned position") {
  Sample sample;
  sample.learn_positions(200);
  sample.prompt.ids = sample.encode("The pass key is 4711. The sky is blue. What is the pass key?");
  const trace::MemoryTrace trace = sample.run();
  const Ids& ids = sample.prompt.ids;
  SecondPass expected = empty(sample, ids.size(), ids.size());
  add_slowly(sample, ids,
             joined({sample.encode("\n\nRepeat the previous context exactly."), sample.encode("\n"), ids}), 0,
             0, ids.size(), expected);
  compare(sample.pass(trace::Sequence(trace), 2000), expected);
}

TEST_CASE("a chat template's tokens are not repeated: those before the text are seen, those behind it ask") {
  Sample sample;
  const Ids opening = sample.encode("User: "), text = sample.encode("The pass key is 4711. The sky is blue."),
            closing = sample.encode("\nAssistant: ");
  sample.prompt.ids = joined({opening, text, closing});
  sample.prompt.part_flags.assign(sample.prompt.ids.size(), trace::kFlagContext);
  for (std::size_t t = 0; t < sample.prompt.ids.size(); ++t)
    if (t < opening.size() || t >= opening.size() + text.size())
      sample.prompt.part_flags[t] = workload::kFlagMarkup;
  const trace::MemoryTrace trace = sample.run();
  SecondPass expected = empty(sample, sample.prompt.ids.size(), text.size());
  add_slowly(sample, sample.prompt.ids,
             joined({sample.encode("\n\nRepeat the previous context exactly."), closing, text}),
             opening.size(), opening.size(), opening.size() + text.size(), expected);
  for (std::size_t i = 0; i < expected.attention.size(); ++i)
    if (const std::size_t t = i % sample.prompt.ids.size();
        t < opening.size() || t >= opening.size() + text.size())
      expected.attention[i] = expected.scaled[i] = kAlwaysKept;
  const SecondPass got = sample.pass(trace::Sequence(trace), 2000);
  for (std::size_t i = 0; i < got.attention.size(); ++i)
    REQUIRE((got.attention[i] == kAlwaysKept) == (expected.attention[i] == kAlwaysKept));
  compare(repeated(got), repeated(expected));
}

TEST_CASE("a second pass that cannot be made says why") {
  Sample sample;
  sample.prompt.ids = sample.encode("The sky is blue.");
  trace::MemoryTrace trace = sample.run();
  sample.config.max_positions = 20;
  CHECK_THROWS_WITH(sample.pass(trace::Sequence(trace), 2000), Catch::Contains("20"));
  sample.config.max_positions = 4096;
  trace::Header header = trace.header();
  header.model.layer_window[0] = 8;
  const trace::MemoryTrace windowed(std::move(header));
  CHECK_THROWS_WITH(sample.pass(trace::Sequence(windowed), 2000), Catch::Contains("sliding window"));
}

}  // namespace kvsim::capture::test_second_pass
