// Prompts that are put together of documents: the worked example, what must equal the whole prompt's run, and
// a slow reference that computes token by token.
#include <cmath>
#include <memory>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/loop/assembled_prompt.hpp"
#include "tests/unit/loop/loop_place.hpp"
#include "traces/model/cpu/step_batch.hpp"

namespace kvsim::sim::test_assembled_prompt {
namespace {

using model::cpu::StepBatch;
using model::cpu::StepTensors;
using trace::Tensor;

/// Set before any was looked at: products in another order, in float.
constexpr double kRounding = 1e-4;

/// A prompt and its documents, each run alone.
struct Documents {
  Documents(const std::string& variant, std::size_t tokens,
            const std::vector<std::pair<std::size_t, std::size_t>>& places, bool four_layers = false)
      : place(variant, tokens) {
    if (four_layers) repeat_layers();
    for (const auto& [begin, end] : places) {
      capture::Prompt document;
      document.ids.assign(place.prompt.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                          place.prompt.ids.begin() + static_cast<std::ptrdiff_t>(end));
      Progress progress;
      alone.push_back(std::make_unique<trace::MemoryTrace>(capture::run_prompt(
          document, place.golden.config, place.golden.weights,
          {.model_dir = "golden", .positions = place.prompt.ids.size() + Place::kNew, .threads = 1},
          progress)));
      pieces.push_back({begin, end, alone.back().get(), 0});
    }
  }

  /// The golden checkpoints have two layers; the same come again.
  void repeat_layers() {
    model::ModelConfig& config = place.golden.config;
    REQUIRE(config.n_layers == 2);
    config.n_layers = 4;
    const auto twice = [](auto& of) {
      const auto once = of;
      of.insert(of.end(), once.begin(), once.end());
    };
    twice(config.layer_window);
    twice(config.kinds);
    twice(place.golden.weights.layers);
    place.trace = place.read();
  }

  AssembledPrompt assembled(const std::string& how, unsigned threads = 1) {
    Progress progress;
    return assemble_prompt(place_documents(place.trace, pieces, threads), place.prompt.ids, pieces,
                           place.golden.config, place.golden.weights, parse_assembly(how, "test"),
                           place.prompt.ids.size() + Place::kNew, threads, progress);
  }

  LoopOutcome loop(const AssembledPrompt& prompt, const std::string& policy, const std::string& budget,
                   std::vector<ReferenceRun>* references = nullptr) {
    LoopRequest request = Place::request({policy}, {budget});
    request.assembled = AssembledPrefill{&place.trace, "test", prompt.computed, references};
    const trace::Sequence sequence(prompt.trace, 0, {});
    Progress progress;
    return closed_loop(sequence, place.prompt.ids, place.golden.config, place.golden.weights, request,
                       progress)
        .front();
  }

  Place place;
  std::vector<std::unique_ptr<trace::MemoryTrace>> alone;
  std::vector<Piece> pieces;
};

std::vector<float> numbers(const trace::Source& trace, Tensor tensor, std::uint32_t layer,
                           std::uint64_t first, std::uint64_t n) {
  const trace::Model& model = trace.header().model;
  const std::size_t dim = tensor == Tensor::value ? model.v_head_dim : model.head_dim;
  std::vector<float> out;
  for (std::uint32_t head = 0; head < (tensor == Tensor::query ? model.n_q_heads : model.n_kv_heads);
       ++head) {
    std::vector<float> rows(n * dim);
    trace.read(tensor, layer, head, first, n, rows);
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

/// |a - b| / |b| of some tokens in one layer.
double distance(const trace::Source& a, const trace::Source& b, Tensor tensor, std::uint32_t layer,
                std::uint64_t first, std::uint64_t n) {
  const std::vector<float> x = numbers(a, tensor, layer, first, n), y = numbers(b, tensor, layer, first, n);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    norm += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / norm);
}

double farthest(const trace::Source& a, const trace::Source& b, std::uint64_t n) {
  double most = 0;
  for (std::uint32_t layer = 0; layer < a.header().model.n_layers; ++layer)
    for (const Tensor tensor : {Tensor::query, Tensor::key, Tensor::value}) {
      const double found = distance(a, b, tensor, layer, 0, n);
      if (!(found <= most)) most = found;  // no number is far, too
    }
  return most;
}

std::vector<std::string> variants() {
  std::vector<std::string> out;
  for (const std::string& variant : model::golden_variants())
    if (!variant.ends_with("_latent")) out.push_back(variant);
  return out;
}

/// The same in the plainest way: what layers hold is known before, and the tokens that are computed come one
/// by one, each through all layers, with attention in double.
trace::MemoryTrace one_by_one(Documents& documents, const AssembledPrompt& by_deviation_or_not,
                              const Assembly& assembly) {
  const std::size_t n = documents.place.prompt.ids.size();
  const model::ModelConfig& config = documents.place.golden.config;
  Progress progress;
  trace::MemoryTrace held = documents.assembled("none").trace;
  const bool values = assembly.choice == Assembly::Choice::values,
             keys = assembly.choice == Assembly::Choice::keys;
  for (std::uint32_t layer = 0; layer < (values ? 2U : keys ? 1U : 0U); ++layer)
    for (std::uint32_t head = 0; head < config.n_kv_heads; ++head)
      for (const Tensor tensor : {Tensor::key, Tensor::value})
        documents.place.trace.read(tensor, layer, head, 0, n, held.rows(tensor, layer, head));
  std::vector<std::uint64_t> computed = by_deviation_or_not.chosen;
  for (std::uint64_t position = 0; position < n; ++position)
    if (std::ranges::none_of(documents.pieces, [&](const Piece& piece) {
          return position >= piece.begin && position < piece.end;
        }))
      computed.push_back(position);
  std::ranges::sort(computed);
  Workers workers(1);
  StepBatch batch(config, documents.place.golden.weights, Elem::f32, n + Place::kNew, workers);
  const std::size_t group = config.n_heads / config.n_kv_heads, dim = config.head_dim;
  for (const std::uint64_t position : computed) {
    const StepBatch::Row row{documents.place.prompt.ids[position], position};
    batch.forward({&row, 1}, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
      for (std::uint32_t head = 0; head < config.n_heads; ++head) {
        const std::uint32_t lane = head / static_cast<std::uint32_t>(group);
        const std::span<float> key = held.rows(Tensor::key, layer, lane);
        const std::span<float> value = held.rows(Tensor::value, layer, lane);
        std::ranges::copy(tensors.keys(0, lane, 1).row(0), key.subspan(position * dim, dim).begin());
        std::ranges::copy(tensors.values(0, lane, 1).row(0), value.subspan(position * dim, dim).begin());
        const std::span<const float> query = tensors.queries(0, head, 1).row(0);
        std::ranges::copy(query, held.rows(Tensor::query, layer, head).subspan(position * dim, dim).begin());
        std::vector<double> weights(position + 1), sums(dim);
        double total = 0;
        for (std::size_t j = 0; j <= position; ++j) {
          double product = 0;
          for (std::size_t c = 0; c < dim; ++c)
            product += static_cast<double>(query[c]) * static_cast<double>(key[j * dim + c]);
          total += weights[j] = std::exp(product / std::sqrt(static_cast<double>(dim)));
        }
        for (std::size_t j = 0; j <= position; ++j)
          for (std::size_t c = 0; c < dim; ++c)
            sums[c] += weights[j] / total * static_cast<double>(value[j * dim + c]);
        for (std::size_t c = 0; c < dim; ++c) attended[head * dim + c] = static_cast<float>(sums[c]);
      }
    });
  }
  return held;
}

}  // namespace

TEST_CASE("the worked example: two documents of two tokens, a question of one") {
  const std::vector<double> by_values{0, 0, .9, .2}, by_keys{0, 0, .3, .6};
  CHECK(most_deviating(by_values, 25) == std::vector<std::size_t>{2});
  CHECK(most_deviating(by_keys, 25) == std::vector<std::size_t>{3});
  CHECK(most_deviating(by_values, 24.9).empty());
  CHECK(most_deviating(std::vector<double>{1, 1, 1, 1}, 50) == std::vector<std::size_t>{0, 1});

  Documents documents("llama_untied_f32", 5, {{0, 2}, {2, 4}}, true);
  CHECK(documents.assembled("cacheblend:25%").layer_rows == 11);
  CHECK(documents.assembled("lmcache:25%").layer_rows == 11);
  CHECK(documents.assembled("epic:1").layer_rows == 12);
  CHECK(documents.assembled("epic:1").chosen == std::vector<std::uint64_t>{0, 2});
  CHECK(documents.assembled("none").layer_rows == 4);
  CHECK(documents.assembled("all").layer_rows == 20);
  CHECK(documents.assembled("none").computed == 0.2);
  // A is what the prompt begins with, so that nothing of it deviates.
  for (const char* how : {"cacheblend:25%", "lmcache:25%"}) {
    const std::vector<std::uint64_t> chosen = documents.assembled(how).chosen;
    REQUIRE(chosen.size() == 1);
    CHECK(chosen[0] >= 2);
  }
}

TEST_CASE("a prompt that is computed whole equals its run, for every model") {
  for (const std::string& variant : variants()) {
    Documents documents(variant, 24, {{0, 7}, {7, 13}, {15, 20}});
    for (const char* how : {"all", "cacheblend:100%", "lmcache:100%", "epic:7"}) {
      CAPTURE(variant, how);
      CHECK(farthest(documents.assembled(how).trace, documents.place.trace, 24) < kRounding);
    }
  }
}

TEST_CASE("a document that the prompt begins with is what it is in the prompt, for every model") {
  for (const std::string& variant : variants()) {
    CAPTURE(variant);
    Documents documents(variant, 24, {{0, 20}});
    CHECK(farthest(documents.assembled("none").trace, documents.place.trace, 24) < kRounding);
  }
}

TEST_CASE("keys and values of layer 0 depend on their token and its place alone; those of layer 1 do not") {
  for (const std::string& variant : variants()) {
    CAPTURE(variant);
    Documents documents(variant, 24, {{0, 7}, {7, 13}, {15, 20}});
    const AssembledPrompt none = documents.assembled("none");
    CHECK(distance(none.trace, documents.place.trace, Tensor::key, 0, 0, 24) < kRounding);
    CHECK(distance(none.trace, documents.place.trace, Tensor::value, 0, 0, 24) < kRounding);
    CHECK(distance(none.trace, documents.place.trace, Tensor::value, 1, 7, 6) > 10 * kRounding);
    CHECK(distance(none.trace, documents.place.trace, Tensor::value, 1, 0, 7) < kRounding);
  }
}

TEST_CASE("what is computed in a batch that narrows equals what is computed token by token") {
  Documents documents("llama_untied_f32", 24, {{0, 7}, {7, 13}, {15, 20}}, true);
  for (const char* how : {"none", "epic:2", "cacheblend:30%", "lmcache:30%"}) {
    CAPTURE(how);
    const AssembledPrompt made = documents.assembled(how);
    const trace::MemoryTrace slow = one_by_one(documents, made, parse_assembly(how, "test"));
    for (std::uint32_t layer = 0; layer < documents.place.golden.config.n_layers; ++layer)
      for (const Tensor tensor : {Tensor::key, Tensor::value})
        CHECK(distance(made.trace, slow, tensor, layer, 0, 24) < kRounding);
  }
  // The tokens that are computed change what follows, from layer 2 on: layer 0 is exact either way, so layer
  // 1 of what follows is, too.
  const AssembledPrompt some = documents.assembled("epic:2"), none = documents.assembled("none");
  CHECK(distance(some.trace, none.trace, Tensor::value, 1, 20, 4) < kRounding);
  CHECK(distance(some.trace, none.trace, Tensor::value, 2, 20, 4) > 10 * kRounding);
}

TEST_CASE("results of an assembled prompt do not depend on threads") {
  Documents documents("llama_tied", 24, {{0, 7}, {7, 13}});
  for (const char* how : {"cacheblend:30%", "epic:2"}) {
    const AssembledPrompt one = documents.assembled(how, 1), two = documents.assembled(how, 2);
    CHECK(one.chosen == two.chosen);
    for (std::uint32_t layer = 0; layer < documents.place.golden.config.n_layers; ++layer)
      CHECK(numbers(one.trace, Tensor::value, layer, 0, 24) ==
            numbers(two.trace, Tensor::value, layer, 0, 24));
  }
}

TEST_CASE("the loop compares cells of an assembled prompt with the whole prompt") {
  Documents documents("llama_tied", 24, {{0, 7}, {7, 13}, {15, 20}});
  const LoopOutcome whole = documents.place.run({"full"}, {"100"});
  const LoopOutcome all = documents.loop(documents.assembled("all"), "full", "100");
  const LoopOutcome none = documents.loop(documents.assembled("none"), "full", "100");
  for (const LoopOutcome* outcome : {&all, &none}) {
    CHECK(outcome->references[0].tokens == whole.references[0].tokens);
    CHECK(outcome->references[0].margins == whole.references[0].margins);
    CHECK(outcome->cells[0].kept_tokens == 24);
  }
  const auto first_kl = [](const LoopOutcome& outcome) {
    return outcome.cells[0].modes[0].measures.front().kl;
  };
  CHECK(first_kl(all) < kRounding);
  CHECK(first_kl(none) > first_kl(all));
  CHECK(none.cells[0].modes[0].drift.back().residual_l2 > 10 * kRounding);
  // Policies and codes take the assembled prompt as their own.
  CHECK(documents.loop(documents.assembled("epic:1"), "snapkv(window=4)+kivi(group=2,residual=4)", "8")
            .cells[0]
            .kept_tokens == 8);
}

TEST_CASE("references that another form of the prompt has left say what they would say themselves") {
  Documents documents("llama_tied", 24, {{0, 7}, {7, 13}, {15, 20}});
  const AssembledPrompt all = documents.assembled("all"), none = documents.assembled("none");
  std::vector<ReferenceRun> kept;
  documents.loop(all, "full", "100", &kept);
  REQUIRE(kept.size() == 2);
  REQUIRE(kept[0].predicted.size() == kept[0].turns[0].tokens.size());
  for (int again = 0; again < 2; ++again) {
    const LoopOutcome alone = documents.loop(none, "snapkv(window=4)", "8"),
                      with = documents.loop(none, "snapkv(window=4)", "8", &kept);
    for (std::size_t mode = 0; mode < 2; ++mode) {
      CHECK(with.references[mode].tokens == alone.references[mode].tokens);
      CHECK(with.references[mode].margins == alone.references[mode].margins);
      CHECK(with.references[mode].resident == alone.references[mode].resident);
      CHECK(with.references[mode].seen == alone.references[mode].seen);
      CHECK(with.cells[0].modes[mode].tokens == alone.cells[0].modes[mode].tokens);
    }
    const StreamOutcome &a = alone.cells[0].modes[0], &b = with.cells[0].modes[0];
    CHECK(b.measures.front().kl == a.measures.front().kl);
    CHECK(b.measures.back().kl == a.measures.back().kl);
    CHECK(b.drift.back().residual_l2 == a.drift.back().residual_l2);
    CHECK(b.drift.back().query_l2 == a.drift.back().query_l2);
  }
  // They are what is compared with: others give other numbers.
  kept[0].predicted.begin()->second.logits.front() += 1;
  CHECK(documents.loop(none, "snapkv(window=4)", "8", &kept).cells[0].modes[0].measures.front().kl !=
        documents.loop(none, "snapkv(window=4)", "8").cells[0].modes[0].measures.front().kl);
}

TEST_CASE("ways to put a prompt together are refused by name") {
  for (const char* how :
       {"", "cacheblend", "cacheblend:101%", "cacheblend:nan%", "epic:", "epic:-1", "epic:2%", "All"})
    CHECK_THROWS_AS(parse_assembly(how, "--prefill"), Error);
  CHECK(parse_assembly("lmcache:12.5%", "--prefill").percent == 12.5);
}

}  // namespace kvsim::sim::test_assembled_prompt
