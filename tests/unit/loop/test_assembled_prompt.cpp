// Prompts that are put together of documents: the worked example, what must equal the whole prompt's run, and
// a slow reference that computes token by token.
#include <cmath>
#include <memory>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/loop/assembled_prompt.hpp"
#include "sim/loop/chunk_context.hpp"
#include "sim/replay/pieces.hpp"
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
    for (const auto& [begin, end] : places) pieces.push_back({begin, end, run(ids(begin, end)), 0});
  }

  std::vector<std::int32_t> ids(std::size_t begin, std::size_t end) const {
    return {place.prompt.ids.begin() + static_cast<std::ptrdiff_t>(begin),
            place.prompt.ids.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  const trace::MemoryTrace* run(std::vector<std::int32_t> text) {
    capture::Prompt prompt;
    prompt.ids = std::move(text);
    Progress progress;
    alone.push_back(std::make_unique<trace::MemoryTrace>(capture::run_prompt(
        prompt, place.golden.config, place.golden.weights,
        {.model_dir = "golden", .positions = place.prompt.ids.size() + Place::kNew, .threads = 1},
        progress)));
    return alone.back().get();
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
    return assemble_prompt(place_pieces(place.trace, pieces, threads), place.prompt.ids, pieces,
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

/// Those whose keys can be turned to other positions.
std::vector<std::string> variants() {
  std::vector<std::string> out;
  for (const std::string& variant : model::golden_variants())
    if (!variant.ends_with("_latent") && !variant.starts_with("opt_")) out.push_back(variant);
  return out;
}

/// The same in the plainest way: what layers hold is known before, and the tokens that are computed come one
/// by one, each through all layers, with attention in double. Where a token sees later ones, they all come
/// once more for each layer, so that one layer more is right each time.
trace::MemoryTrace one_by_one(Documents& documents, const AssembledPrompt& made, const Assembly& assembly) {
  const std::size_t n = documents.place.prompt.ids.size();
  const model::ModelConfig& config = documents.place.golden.config;
  trace::MemoryTrace held = documents.assembled("none").trace;
  const bool values = assembly.choice == Assembly::Choice::values,
             keys = assembly.choice == Assembly::Choice::keys;
  for (std::uint32_t layer = 0; layer < (values ? 2U : keys ? 1U : 0U); ++layer)
    for (std::uint32_t head = 0; head < config.n_kv_heads; ++head)
      for (const Tensor tensor : {Tensor::key, Tensor::value})
        documents.place.trace.read(tensor, layer, head, 0, n, held.rows(tensor, layer, head));
  std::vector<std::uint64_t> computed = made.chosen;
  for (std::uint64_t position = 0; position < n; ++position)
    if (std::ranges::none_of(documents.pieces, [&](const Piece& piece) {
          return position >= piece.begin && position < piece.end;
        }))
      computed.push_back(position);
  std::ranges::sort(computed);
  Workers workers(1);
  StepBatch batch(config, documents.place.golden.weights, Elem::f32, n + Place::kNew, workers);
  const std::size_t group = config.n_heads / config.n_kv_heads, dim = config.head_dim;
  const std::size_t passes = assembly.bottom_right ? config.n_layers : 1;
  for (std::size_t i = 0; i < passes * computed.size(); ++i) {
    const std::size_t number = i % computed.size();
    const std::uint64_t position = computed[number];
    const StepBatch::Row row{documents.place.prompt.ids[position], position};
    batch.forward({&row, 1}, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
      const bool shifted = assembly.bottom_right && layer > 0;  // all tokens are there in layer 0
      const std::size_t seen = 1 + (shifted ? n - computed.size() + number : position);
      for (std::uint32_t head = 0; head < config.n_heads; ++head) {
        const std::uint32_t lane = head / static_cast<std::uint32_t>(group);
        const std::span<float> key = held.rows(Tensor::key, layer, lane);
        const std::span<float> value = held.rows(Tensor::value, layer, lane);
        std::ranges::copy(tensors.keys(0, lane, 1).row(0), key.subspan(position * dim, dim).begin());
        std::ranges::copy(tensors.values(0, lane, 1).row(0), value.subspan(position * dim, dim).begin());
        const std::span<const float> query = tensors.queries(0, head, 1).row(0);
        std::ranges::copy(query, held.rows(Tensor::query, layer, head).subspan(position * dim, dim).begin());
        std::vector<double> weights(seen), sums(dim);
        double total = 0;
        for (std::size_t j = 0; j < seen; ++j) {
          double product = 0;
          for (std::size_t c = 0; c < dim; ++c)
            product += static_cast<double>(query[c]) * static_cast<double>(key[j * dim + c]);
          total += weights[j] = std::exp(product / std::sqrt(static_cast<double>(dim)));
        }
        for (std::size_t j = 0; j < seen; ++j)
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
    for (const char* how : {"all", "cacheblend:100%", "lmcache:100%", "epic:7",
                            "cacheblend:100%:bottom_right", "lmcache:100%:bottom_right"}) {
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
  for (const char* how : {"none", "epic:2", "cacheblend:30%", "lmcache:30%", "cacheblend:30%:bottom_right",
                          "lmcache:30%:bottom_right"}) {
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

TEST_CASE("the mask of CacheBlend's code shows a token that is computed again later ones") {
  // Of five tokens 2 or 3 goes on with the question, 4: with the mask it is the last but one, and sees key 3.
  Documents documents("llama_untied_f32", 5, {{0, 2}, {2, 4}}, true);
  const AssembledPrompt exact = documents.assembled("cacheblend:25%"),
                        masked = documents.assembled("cacheblend:25%:bottom_right");
  REQUIRE(masked.chosen == exact.chosen);
  REQUIRE(exact.chosen.size() == 1);
  const double moved = distance(masked.trace, exact.trace, Tensor::value, 2, exact.chosen[0], 1);
  if (exact.chosen[0] == 3)
    CHECK(moved == 0);
  else
    CHECK(moved > 10 * kRounding);
  CHECK(masked.layer_rows == exact.layer_rows);
  Documents longer("llama_untied_f32", 24, {{0, 7}, {7, 13}, {15, 20}}, true);
  const std::uint64_t first = longer.assembled("cacheblend:30%").chosen.front();
  CHECK(distance(longer.assembled("cacheblend:30%:bottom_right").trace,
                 longer.assembled("cacheblend:30%").trace, Tensor::value, 2, first, 1) > 10 * kRounding);
}

TEST_CASE("an insertion or a deletion leaves what stands before it, and layer 0 behind it, for every model") {
  for (const std::string& variant : variants()) {
    CAPTURE(variant);
    Documents inserted(variant, 24, {});
    std::vector<std::int32_t> old = inserted.ids(0, 7), rest = inserted.ids(13, 24);
    old.insert(old.end(), rest.begin(), rest.end());
    const trace::MemoryTrace* run = inserted.run(old);
    inserted.pieces = {{0, 7, run, 0}, {13, 23, run, 7}};
    Documents deleted(variant, 24, {});
    old = deleted.ids(0, 7);
    for (const auto& part : {deleted.ids(15, 20), deleted.ids(7, 24)})  // five tokens more
      old.insert(old.end(), part.begin(), part.end());
    run = deleted.run(old);
    deleted.pieces = {{0, 7, run, 0}, {7, 23, run, 12}};
    for (const auto& [documents, behind] : {std::pair{&inserted, 13U}, {&deleted, 7U}}) {
      const AssembledPrompt made = documents->assembled("none");
      const trace::MemoryTrace& joint = documents->place.trace;
      for (const Tensor tensor : {Tensor::key, Tensor::value}) {
        CHECK(distance(made.trace, joint, tensor, 0, 0, 24) < kRounding);
        CHECK(distance(made.trace, joint, tensor, 1, 0, 7) < kRounding);
        CHECK(distance(made.trace, joint, tensor, 1, behind, 1) > 10 * kRounding);
      }
    }
    CHECK(inserted.assembled("none").layer_rows == 7 * inserted.place.golden.config.n_layers);
    CHECK(deleted.assembled("none").layer_rows == deleted.place.golden.config.n_layers);
    CHECK(distance(inserted.assembled("none").trace, inserted.place.trace, Tensor::value, 1, 7, 6) <
          kRounding);
  }
}

TEST_CASE("a document's tokens are computed again as far as its context has changed, by hand") {
  // Two tokens behind two: of what they attend, .8 falls on the earlier chunk and 1.2 on their own, so that
  // the impact is 1 / (1 + exp(-.2 / .3)) = .661.
  const ChunkAttention attention{{.2, .8}, {.6, .4}};
  const std::vector<std::uint64_t> sizes{2, 2};
  using Tokens = std::vector<std::size_t>;
  CHECK(recomputed_tokens(attention, sizes, {}, 1) == Tokens{0, 1});    // 1.32
  CHECK(recomputed_tokens(attention, sizes, {}, .7) == Tokens{1});      // .93
  CHECK(recomputed_tokens(attention, sizes, {}, .76) == Tokens{0, 1});  // 1.004
  CHECK(recomputed_tokens(attention, sizes, {}, 0).empty());
  CHECK(recomputed_tokens(attention, sizes, Tokens{0}, 1).empty());                    // the same prefix
  CHECK(recomputed_tokens({{1}, {1}}, std::vector<std::uint64_t>{2}, {}, 1).empty());  // there was none
  // Behind two chunks of one token each: the same order, the other, one of them.
  const ChunkAttention three{{.3, .1, .6}, {.1, .1, .8}};
  const std::vector<std::uint64_t> ones{1, 1, 2};
  CHECK(recomputed_tokens(three, ones, Tokens{0, 1}, 1).empty());
  CHECK(recomputed_tokens(three, ones, Tokens{1, 0}, .7) == recomputed_tokens(three, ones, {}, .7));
  // Impact 1 / (1 + exp(-.3 / .35)) = .702; two thirds of the earlier attention falls on chunk 0.
  CHECK(recomputed_tokens(three, ones, Tokens{0}, 1) == Tokens{0});       // .47
  CHECK(recomputed_tokens(three, ones, Tokens{0}, 2.2) == Tokens{0, 1});  // 1.03
}

TEST_CASE("what chunks attend is what their rows attend") {
  Documents documents("llama_tied", 24, {});
  const trace::MemoryTrace& run = documents.place.trace;
  const trace::Model& model = run.header().model;
  const std::vector<Chunk> chunks{{0, 5}, {5, 11}, {13, 20}};
  const std::vector<ChunkAttention> found = chunk_attention(run, chunks, 1);
  const std::size_t dim = model.head_dim, group = model.n_q_heads / model.n_kv_heads;
  for (std::size_t i = 0; i < chunks.size(); ++i)
    for (std::uint64_t row = chunks[i].begin; row < chunks[i].end; ++row) {
      std::vector<double> sums(i + 1);
      for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
        for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
          std::vector<float> query(dim), keys((row + 1) * dim);
          run.read(Tensor::query, layer, head, row, 1, query);
          run.read(Tensor::key, layer, head / static_cast<std::uint32_t>(group), 0, row + 1, keys);
          std::vector<double> weights(row + 1);
          double total = 0;
          for (std::size_t key = 0; key <= row; ++key) {
            double product = 0;
            for (std::size_t c = 0; c < dim; ++c)
              product += static_cast<double>(query[c]) * static_cast<double>(keys[key * dim + c]);
            total += weights[key] = std::exp(product * model.attn_scale);
          }
          for (std::size_t j = 0; j <= i; ++j)
            for (std::uint64_t key = chunks[j].begin; key < std::min(chunks[j].end, row + 1); ++key)
              sums[j] += weights[key] / total / static_cast<double>(model.n_layers * model.n_q_heads);
        }
      for (std::size_t j = 0; j <= i; ++j)
        CHECK(std::abs(found[i][row - chunks[i].begin][j] - sums[j]) < kRounding);
    }
  CHECK(chunk_attention(run, chunks, 2) == found);
}

TEST_CASE("documents of a prompt in which they stood in another order") {
  Documents documents("llama_untied_f32", 24, {}, true);
  const trace::MemoryTrace& joint = documents.place.trace;
  // The same order: nothing has changed, and nothing is computed again.
  documents.pieces = {{0, 7, &joint, 0}, {7, 13, &joint, 7}, {13, 20, &joint, 13}};
  choose_across(documents.pieces, 1, 1);
  for (const Piece& piece : documents.pieces) CHECK(piece.again.empty());
  CHECK(farthest(documents.assembled("cachecraft:1").trace, joint, 24) < kRounding);
  // Reversed: what was the first is kept as it is, of the others more than half is computed again.
  std::vector<std::int32_t> old = documents.ids(13, 20);
  for (const std::int32_t id : documents.ids(7, 13)) old.push_back(id);
  for (const std::int32_t id : documents.ids(0, 7)) old.push_back(id);
  const trace::MemoryTrace* run = documents.run(old);
  documents.pieces = {{0, 7, run, 13}, {7, 13, run, 7}, {13, 20, run, 0}};
  choose_across(documents.pieces, 1, 1);
  CHECK(documents.pieces[0].again.size() >= 4);
  CHECK(documents.pieces[1].again.size() >= 3);
  CHECK(documents.pieces[2].again.empty());
  const AssembledPrompt made = documents.assembled("cachecraft:1");
  CHECK(made.chosen.size() == documents.pieces[0].again.size() + documents.pieces[1].again.size());
  const trace::MemoryTrace slow = one_by_one(documents, made, parse_assembly("cachecraft:1", "test"));
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    for (const Tensor tensor : {Tensor::key, Tensor::value})
      CHECK(distance(made.trace, slow, tensor, layer, 0, 24) < kRounding);
  // All of all documents: the joint run.
  for (Piece& piece : documents.pieces) {
    piece.again.clear();
    for (std::uint64_t position = piece.begin; position < piece.end; ++position)
      piece.again.push_back(position);
  }
  CHECK(farthest(documents.assembled("cachecraft:1").trace, joint, 24) < kRounding);
}

TEST_CASE("errors by layer and distance from the seam, beside a slow reference") {
  Documents documents("llama_tied", 24, {{0, 7}, {7, 13}, {15, 20}});
  const AssembledPrompt made = documents.assembled("none");
  const trace::MemoryTrace& joint = documents.place.trace;
  const trace::Model& model = joint.header().model;
  const std::vector<SeamError> errors = seam_errors(made.trace, joint, documents.pieces, 1);
  REQUIRE(errors.size() == model.n_layers * std::size_t{4});  // 0, 1, 2 to 3, 4 to 7
  const std::size_t dim = model.head_dim, group = model.n_q_heads / model.n_kv_heads;
  const auto attended = [&](const trace::MemoryTrace& of, std::uint32_t layer, std::uint32_t head,
                            std::uint64_t at) {
    const auto lane = head / static_cast<std::uint32_t>(group);
    std::vector<float> query(dim), keys((at + 1) * dim), values((at + 1) * dim);
    joint.read(Tensor::query, layer, head, at, 1, query);
    of.read(Tensor::key, layer, lane, 0, at + 1, keys);
    of.read(Tensor::value, layer, lane, 0, at + 1, values);
    std::vector<double> weights(at + 1), output(dim);
    double total = 0;
    for (std::size_t key = 0; key <= at; ++key) {
      double product = 0;
      for (std::size_t c = 0; c < dim; ++c)
        product += static_cast<double>(query[c]) * static_cast<double>(keys[key * dim + c]);
      total += weights[key] = std::exp(product * model.attn_scale);
    }
    for (std::size_t key = 0; key <= at; ++key) {
      weights[key] /= total;
      for (std::size_t c = 0; c < dim; ++c)
        output[c] += weights[key] * static_cast<double>(values[key * dim + c]);
    }
    return std::pair(weights, output);
  };
  for (const SeamError& error : errors) {
    const std::uint64_t last = std::min<std::uint64_t>(error.to, 6);
    double key = 0, value = 0, attention = 0, output = 0;
    std::uint64_t n = 0;
    for (const std::uint64_t begin : {7U, 15U})
      for (std::uint64_t at = begin + error.from; at < std::min(begin + last, begin == 7 ? 13UL : 20UL);
           ++at) {
        ++n;
        key += distance(made.trace, joint, Tensor::key, error.layer, at, 1);
        value += distance(made.trace, joint, Tensor::value, error.layer, at, 1);
        double moved = 0, difference = 0, norm = 0;
        for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
          const auto [a, x] = attended(made.trace, error.layer, head, at);
          const auto [b, y] = attended(joint, error.layer, head, at);
          for (std::size_t i = 0; i < a.size(); ++i) moved += std::abs(a[i] - b[i]) / 2;
          for (std::size_t c = 0; c < dim; ++c) {
            difference += std::pow(x[c] - y[c], 2);
            norm += y[c] * y[c];
          }
        }
        attention += moved / model.n_q_heads;
        output += std::sqrt(difference / norm);
      }
    CHECK(error.tokens == n);
    const auto tokens = static_cast<double>(n);
    CHECK(std::abs(error.key - key / tokens) < kRounding);
    CHECK(std::abs(error.value - value / tokens) < kRounding);
    CHECK(std::abs(error.attention - attention / tokens) < kRounding);
    CHECK(std::abs(error.output - output / tokens) < kRounding);
  }
  CHECK(errors.back().output > 10 * kRounding);
  for (const SeamError& error : seam_errors(documents.assembled("all").trace, joint, documents.pieces, 2))
    CHECK(std::max({error.key, error.value, error.attention, error.output}) < kRounding);
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
  for (const char* how : {"", "cacheblend", "cacheblend:101%", "cacheblend:nan%", "epic:", "epic:-1",
                          "epic:2%", "All", "none:bottom_right", "epic:1:bottom_right",
                          "cacheblend:1%:bottom", "pie:0", "pie:", "cachecraft:-1", "cachecraft:nan"})
    CHECK_THROWS_AS(parse_assembly(how, "--prefill"), Error);
  CHECK(parse_assembly("lmcache:12.5%", "--prefill").percent == 12.5);
}

TEST_CASE("keys that cannot be turned to other positions are refused") {
  for (const char* variant : {"opt_learned_positions", "deepseek_v2_latent"}) {
    Documents documents(variant, 24, {{4, 12}});
    CHECK_THROWS_WITH(documents.assembled("none"), Catch::Matchers::Contains("--prefill"));
  }
}

}  // namespace kvsim::sim::test_assembled_prompt
