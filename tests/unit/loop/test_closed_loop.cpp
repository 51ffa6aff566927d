// Laws of the closed loop on the golden checkpoints: what it must equal, and what it must not depend on.
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "policies/api/slots.hpp"
#include "sim/base/error.hpp"
#include "sim/loop/slot_rows.hpp"
#include "sim/replay/budget.hpp"
#include "tests/unit/loop/loop_place.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim::test_closed_loop {
namespace {

std::vector<std::vector<std::uint32_t>> flat(const std::vector<ResidentInterval>& intervals) {
  std::vector<std::vector<std::uint32_t>> out;
  for (const ResidentInterval& interval : intervals)
    out.push_back({static_cast<std::uint32_t>(interval.position), interval.first, interval.last});
  return out;
}

/// Positions that the prompt leaves.
std::vector<std::int32_t> after_cut(const std::vector<ResidentInterval>& intervals) {
  std::vector<std::int32_t> out;
  for (const ResidentInterval& interval : intervals)
    if (interval.first == 0) out.push_back(interval.position);
  return out;
}

/// Keeps the newest tokens and writes down the keys that come again.
struct Renewals {
  std::mutex mutex{};
  std::map<std::pair<int, int>, std::vector<std::vector<float>>> keys{};  ///< by layer and KV head
};

class RenewedDecoder final : public policy::Decoder, public policy::Renewing {
 public:
  RenewedDecoder(const policy::CacheUnit& unit, Renewals& seen) : unit_(unit), seen_(&seen) {}
  void evict(const policy::Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (arrival.full) victims.push_back(0);
  }
  void renew(const policy::Step& step) override {
    CHECK(step.slots[step.own_slot] == step.position);
    const std::lock_guard lock(seen_->mutex);
    const std::span<const float> key = step.keys.row(0);
    seen_->keys[{unit_.layer, unit_.first_kv_head}].emplace_back(key.begin(), key.end());
  }

 private:
  policy::CacheUnit unit_;
  Renewals* seen_;
};

class RenewedEviction final : public policy::Eviction {
 public:
  RenewedEviction(const policy::CacheUnit& unit, Renewals& seen) : unit_(unit), seen_(&seen) {}
  void finish_prompt(const policy::Prompt& prompt) override { prompt_ = prompt.length(); }
  policy::Start start(std::size_t budget) const override {
    policy::Start out;
    for (std::size_t i = prompt_ - std::min(budget, prompt_); i < prompt_; ++i)
      out.keep.push_back(static_cast<policy::Position>(i));
    out.decoder = std::make_unique<RenewedDecoder>(unit_, *seen_);
    return out;
  }

 private:
  policy::CacheUnit unit_;
  Renewals* seen_;
  std::size_t prompt_ = 0;
};

const std::vector<trace::Cut> kCuts = {{}, {trace::Cut::At::position, 9}};
const std::vector<std::string> kPolicies = {"h2o",           "snapkv(window=4)",         "tova",    "keydiff",
                                            "streaming_llm", "snapkv(window=4)+pyramid", "l2_norm", "random"};

}  // namespace

TEST_CASE("the full cache, and any budget that evicts nothing, equals the reference in every bit") {
  for (const std::string& variant : model::golden_variants()) {
    Place place(variant);
    for (const trace::Cut& cut : kCuts) {
      const LoopOutcome outcome =
          place.run({"full", "h2o", "keydiff", "snapkv", "streaming_llm"}, {"100"}, cut);
      for (const LoopCell& cell : outcome.cells)
        for (std::size_t mode = 0; mode < 2; ++mode) {
          CHECK(cell.modes[mode].tokens == outcome.references[mode].tokens);
          for (const TokenMeasures& at : cell.modes[mode].measures) {
            CHECK(at.kl == 0);
            CHECK(at.log_p == at.log_p_full);
          }
        }
    }
  }
}

TEST_CASE("a window layer holds no more than its window at any step") {
  for (const char* variant : {"mistral_window", "qwen2_late_window", "gemma3_two_rotations"}) {
    Place place(variant);
    const LoopOutcome outcome =
        place.run({"full", "h2o", "snapkv(window=2)", "full+kivi(group=2,residual=4)"}, {"4"});
    const model::ModelConfig& config = place.golden.config;
    std::uint64_t whole = 0, budgeted = 0;  // of lanes, once the windows are full
    for (const std::int32_t window : config.layer_window) {
      whole +=
          config.n_kv_heads * (window < 0 ? place.prompt.ids.size() : static_cast<std::uint64_t>(window));
      budgeted += config.n_kv_heads * (window < 0 ? 4 : std::min<std::uint64_t>(4, window));
    }
    const auto full_layers =
        static_cast<std::uint64_t>(std::count(config.layer_window.begin(), config.layer_window.end(), -1));
    CAPTURE(variant);
    for (std::size_t fed = 0; fed < outcome.references[0].resident.size(); ++fed) {
      // The first token fed is the last of the prompt, asked again.
      const std::uint64_t expected = whole + fed * full_layers * config.n_kv_heads;
      CHECK(outcome.references[0].resident[fed] == expected);
      CHECK(outcome.cells[0].modes[0].resident[fed] == expected);
      CHECK(outcome.cells[1].modes[0].resident[fed] == budgeted);
      CHECK(outcome.cells[2].modes[0].resident[fed] <= expected);
      CHECK(outcome.cells[3].modes[0].resident[fed] == expected);
    }
  }
}

TEST_CASE("a layer with chunks holds what the last one does, and nothing where another begins") {
  // Chunks of 12 in layer 0; layer 1 sees everything. Of 34 tokens layer 0 holds 24 to 33; the third that is
  // generated begins a chunk.
  for (const std::size_t prompt : {24, 34}) {
    Place place("llama4_chunks", prompt);
    const LoopOutcome outcome = place.run({"full", "h2o", "snapkv(window=2)"}, {"3"});
    const std::uint64_t lanes = place.golden.config.n_kv_heads;
    for (std::size_t fed = 0; fed < outcome.references[0].resident.size(); ++fed) {
      CAPTURE(prompt, fed);
      // The first token fed is the last of the prompt, asked again.
      const std::size_t position = prompt - 1 + fed, in_chunk = position % 12 + 1;
      CHECK(outcome.references[0].resident[fed] == lanes * (in_chunk + position + 1));
      CHECK(outcome.cells[0].modes[0].resident[fed] == lanes * (in_chunk + position + 1));
      CHECK(outcome.cells[1].modes[0].resident[fed] == lanes * (std::min<std::size_t>(3, in_chunk) + 3));
    }
  }
  Place place("llama4_chunks", 34);
  const LoopOutcome refused =
      place.run({"full", "full+kivi(group=2,residual=4)", "full+quest(read=4,page=2)"}, {"3"});
  for (std::size_t cell : {1, 2}) CHECK_THAT(refused.cells[cell].skipped, Catch::Contains("at position 36"));
}

TEST_CASE("the reference generates what the model generates") {
  for (const std::string& variant : model::golden_variants()) {
    Place place(variant);
    const LoopOutcome outcome = place.run({"full"}, {"8"}, {trace::Cut::At::position, 9});
    model::cpu::CpuRun run(place.golden.config, place.golden.weights,
                           {.capacity = place.prompt.ids.size() + Place::kNew, .threads = 1});
    model::RunObserver observer;
    run.forward(place.prompt.ids, observer);
    std::vector<std::int32_t> tokens;
    std::vector<double> margins;
    for (std::size_t k = 0; k < Place::kNew; ++k) {
      const std::vector<float> logits = run.logits();
      tokens.push_back(model::choose_token(logits, {}, 0));
      margins.push_back(margin(logits));
      run.forward(std::span(&tokens.back(), 1), observer);
    }
    CAPTURE(variant);
    for (std::size_t k = 0; k < Place::kNew && margins[k] > 1e-4; ++k) {
      CHECK(outcome.references[1].tokens[k] == tokens[k]);
      CHECK(outcome.references[1].margins[k] == Approx(margins[k]).margin(1e-4));
    }
  }
}

TEST_CASE("cells that cannot differ run once, and each gives what it gives alone") {
  Place place("qwen2_mixed_windows");
  const std::vector<std::string> policies = {"full", "full+top_tokens(read=4)", "h2o"}, budgets = {"6", "8"};
  for (const trace::Cut& cut : kCuts) {
    const LoopOutcome together = place.run(policies, budgets, cut);
    for (std::size_t p = 0; p < policies.size(); ++p)
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const LoopCell alone = place.run({policies[p]}, {budgets[b]}, cut).cells[0];
        const LoopCell& cell = together.cells[p * budgets.size() + b];
        CAPTURE(policies[p], budgets[b]);
        CHECK(cell.budget_tokens == alone.budget_tokens);
        CHECK(cell.kept_tokens == alone.kept_tokens);
        CHECK(cell.idle == alone.idle);
        REQUIRE(cell.modes.size() == 2);
        for (std::size_t mode = 0; mode < cell.modes.size(); ++mode)
          CHECK(same(cell.modes[mode], alone.modes[mode]));
      }
  }
}

TEST_CASE("a cell's numbers depend neither on the other cells nor on threads") {
  Place place("qwen2_mixed_windows");
  for (const trace::Cut& cut : kCuts) {
    const LoopOutcome together = place.run(kPolicies, {"6", "8"}, cut);
    const LoopOutcome threads = place.run(kPolicies, {"6", "8"}, cut, 8);
    for (std::size_t p = 0; p < kPolicies.size(); ++p) {
      const LoopOutcome alone = place.run({kPolicies[p]}, {"6", "8"}, cut);
      for (std::size_t b = 0; b < 2; ++b) {
        const LoopCell& cell = together.cells[p * 2 + b];
        CAPTURE(kPolicies[p], cell.skipped);
        CHECK(cell.skipped == alone.cells[b].skipped);
        REQUIRE(cell.modes.size() == alone.cells[b].modes.size());
        for (std::size_t mode = 0; mode < cell.modes.size(); ++mode) {
          CHECK(same(cell.modes[mode], alone.cells[b].modes[mode]));
          CHECK(same(cell.modes[mode], threads.cells[p * 2 + b].modes[mode]));
        }
      }
    }
  }
}

TEST_CASE(
    "a merge that lets nothing pass is its eviction; one that merges is not, and its added logits count") {
  Place place("qwen3_qk_norm");
  for (const trace::Cut& cut : kCuts)
    for (const std::string eviction : {"h2o+", "snapkv(window=4)+", "tova+"}) {
      const LoopOutcome outcome = place.run(
          {eviction + "scalar(bits=16)", eviction + "d2o_merge(gate=fixed,tau=1.5)",
           eviction + "d2o_merge(gate=fixed,tau=-1)", eviction + "d2o_merge(gate=fixed,tau=-1,mass=log)",
           eviction + "compensation", eviction + "fitted_values(least=0,most=0)", eviction + "fitted_values"},
          {"6"}, cut);
      for (const LoopCell& cell : outcome.cells) REQUIRE(cell.skipped.empty());
      for (std::size_t mode = 0; mode < outcome.cells[0].modes.size(); ++mode) {
        CAPTURE(eviction, mode);
        CHECK(same(outcome.cells[0].modes[mode], outcome.cells[1].modes[mode]));
        CHECK_FALSE(same(outcome.cells[0].modes[mode], outcome.cells[2].modes[mode]));
        CHECK_FALSE(same(outcome.cells[2].modes[mode], outcome.cells[3].modes[mode]));
        CHECK_FALSE(same(outcome.cells[0].modes[mode], outcome.cells[4].modes[mode]));
        CHECK_FALSE(same(outcome.cells[0].modes[mode], outcome.cells[5].modes[mode]));
        CHECK_FALSE(same(outcome.cells[5].modes[mode], outcome.cells[6].modes[mode]));
      }
    }
}

TEST_CASE("the closed loop stores pairs of layers together once both have a token") {
  Place place("llama_rope_llama3");
  const std::uint64_t layers = place.golden.config.n_layers, heads = place.golden.config.n_kv_heads;
  REQUIRE(layers % 2 == 0);
  const std::string text = "full+minicache(from=0,gamma=0)";
  for (const trace::Cut& cut : kCuts) {
    const LoopOutcome outcome =
        place.run({"full+scalar(bits=16)", "full+minicache(from=1)", text}, {"100%"}, cut);
    const LoopOutcome threads = place.run({text}, {"100%"}, cut, 8);
    for (const LoopCell& cell : outcome.cells) REQUIRE(cell.skipped.empty());
    const policy::StorageShape lane = storage_shape(trace::Sequence(place.trace, 0, cut));
    const std::uint64_t token = (lane.key_dim + lane.value_dim) * lane.element_bits;
    for (std::size_t mode = 0; mode < outcome.cells[0].modes.size(); ++mode) {
      const StreamOutcome &exact = outcome.cells[0].modes[mode], &paired = outcome.cells[2].modes[mode];
      CHECK(same(exact, outcome.cells[1].modes[mode]));
      CHECK_FALSE(same(exact, paired));
      CHECK(same(paired, threads.cells[0].modes[mode]));
      REQUIRE(exact.stored_bits.size() == paired.stored_bits.size());
      for (std::size_t k = 0; k < exact.stored_bits.size(); ++k) {
        const std::uint64_t tokens = exact.stored_bits[k] / token / layers / heads;
        CHECK(exact.stored_bits[k] == tokens * token * layers * heads);
        // Half of the numbers and, per vector, a length of 16 bits in each.
        CHECK(paired.stored_bits[k] == tokens * heads * layers * (token / 2 + 2 * 16));
      }
    }
  }
}

TEST_CASE("prompt-ranked policies hold what replay holds after the cut, and in layer 0 at every step") {
  // Layer 0 reads nothing but the tokens: what drifts in later layers is not felt there.
  for (const char* variant : {"llama_rope_llama3", "qwen2_mixed_windows", "mistral_window",
                              "qwen2_late_window", "gemma3_two_rotations"}) {
    Place place(variant);
    for (const std::size_t cut : {9, 16}) {
      const trace::Cut at{trace::Cut::At::position, cut};
      LoopRequest request = place.request(kPolicies, {"4", "6", "8", "90%"});
      request.modes = {LoopMode::teacher};
      request.decisions = true;
      const LoopOutcome loop = place.run(request, at);

      const Outcome replayed = place.replayed(variant, request, loop, at);
      for (std::size_t cell = 0; cell < request.cells.size(); ++cell) {
        CAPTURE(variant, cut, request.cells[cell].composition.params, request.cells[cell].budget.text);
        CHECK(loop.cells[cell].skipped == replayed.cells[cell].skipped);
        if (!loop.cells[cell].skipped.empty()) continue;
        const auto& closed = loop.cells[cell].modes[0].resident_intervals;
        const auto& expected = replayed.cells[cell].resident_intervals;
        REQUIRE(closed.size() == expected.size());
        for (std::size_t lane = 0; lane < closed.size(); ++lane) {
          CHECK(after_cut(closed[lane]) == after_cut(expected[lane]));
          if (lane < place.golden.config.n_kv_heads) CHECK(flat(closed[lane]) == flat(expected[lane]));
        }
      }
    }
  }
}

TEST_CASE("sirllm ranks by the recorded predictions, then by those of its cache, in the loop") {
  for (const char* variant : {"llama_rope_llama3", "qwen2_mixed_windows"}) {
    Place place(variant);
    for (const std::uint64_t tokens : {9, 20}) {
      const trace::Cut at{trace::Cut::At::position, tokens};
      LoopRequest request = place.request({"sirllm(sinks=1)"}, {"6", "26"});
      request.modes = {LoopMode::teacher};
      request.decisions = true;
      const LoopOutcome loop = place.run(request, at);
      const Outcome replayed = place.replayed(variant, request, loop, at);
      for (std::size_t cell = 0; cell < 2; ++cell) {
        CAPTURE(variant, loop.cells[cell].skipped);
        REQUIRE((loop.cells[cell].skipped.empty() && replayed.cells[cell].skipped.empty()));
        const auto& closed = loop.cells[cell].modes[0].resident_intervals;
        for (std::size_t lane = 0; lane < closed.size(); ++lane) {
          const auto& expected = replayed.cells[cell].resident_intervals[lane];
          CHECK(after_cut(closed[lane]) == after_cut(expected));
          // Until something leaves a cache, what it predicts is what the full cache predicts.
          if (cell == 1) CHECK(flat(closed[lane]) == flat(expected));
        }
      }
    }
  }
  Place place("llama_rope_llama3");
  LoopRequest chunks = place.request({"sirllm"}, {"6"});
  chunks.prefill_tokens = 8;
  CHECK_THROWS_WITH(place.run(chunks, {}), Catch::Contains("sirllm") && Catch::Contains("predicted"));
}

TEST_CASE(
    "the last prompt token, fed again, is stored, indexed and scored as it has come, whatever stores it") {
  // Stored as it comes, a row is the row that a cache without a representation reads.
  for (const char* variant : {"llama_rope_llama3", "qwen3_qk_norm"}) {
    Place place(variant);
    for (const std::string eviction :
         {"snapkv(window=4)", "streaming_llm", "keydiff(window=1)", "h2o", "full"})
      for (const std::string selection : {"", "+quest(read=4,page=2,dense=0)"}) {
        const LoopOutcome outcome =
            place.run({eviction + selection, eviction + "+scalar(bits=16)" + selection}, {"7"});
        CAPTURE(variant, eviction, selection, outcome.cells[1].skipped);
        REQUIRE(outcome.cells[1].skipped.empty());
        for (std::size_t mode = 0; mode < 2; ++mode)
          CHECK(same(outcome.cells[0].modes[mode], outcome.cells[1].modes[mode]));
      }
  }
}

TEST_CASE("a decoder hears of the last prompt token's new key where the question is known, and there alone") {
  Place place("llama_rope_llama3");
  Renewals seen;
  const policy::PolicySpec spec{
      .name = "renewed",
      .rule = policy::EvictionRule{.make = [&](const policy::Params&, const policy::CacheUnit& unit) {
        return std::make_unique<RenewedEviction>(unit, seen);
      }}};
  LoopRequest request = Place::request({"window"}, {"6"});
  request.cells[0].composition.eviction = policy::Part{&spec, {}};
  request.modes = {LoopMode::teacher};
  place.run(request, {trace::Cut::At::position, 9});
  CHECK(seen.keys.empty());
  place.run(request, {});
  const trace::Model& model = place.trace.header().model;
  CHECK(seen.keys.size() == std::size_t{model.n_layers} * model.n_kv_heads);
  double moved = 0;
  for (const auto& [of, keys] : seen.keys) {
    REQUIRE(keys.size() == 1);
    const auto [layer, head] = of;
    const std::span<const float> dense =
        place.trace
            .rows(trace::Tensor::key, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(head))
            .subspan((place.prompt.ids.size() - 1) * model.head_dim, model.head_dim);
    double squares = 0;
    for (std::size_t c = 0; c < dense.size(); ++c)
      squares += std::pow(static_cast<double>(keys[0][c]) - static_cast<double>(dense[c]), 2);
    if (layer == 0) CHECK(squares < 1e-8);  // the token alone makes it
    moved += squares;
  }
  CHECK(moved > 1e-4);
}

TEST_CASE("parts that change nothing are told in the loop, and others are not") {
  Place place("llama_rope_llama3");
  const std::pair<std::string, std::string> cells[] = {
      {"tova+adakv", "adakv gave every lane the same"},
      {"l2_norm+adakv", ""},
      {"full+kivi(group=4)", "kivi changed no number"},
      {"full+kivi(group=4,residual=8)", ""},
      {"snapkv(window=4)+quest(read=100)", "quest left nothing out"},
      {"snapkv(window=4)+quest(read=4,page=2,dense=0)", ""},
      {"lagkv(lag=8,sinks=2)", "lagkv kept the first 2 tokens"},
      {"streaming_llm", ""},
      {"snapkv(window=4)+compensation", ""},
  };
  for (const trace::Cut& cut : kCuts)
    for (const auto& [text, told] : cells) {
      const LoopOutcome outcome = place.run({text}, {"7"}, cut);
      CAPTURE(text, outcome.cells[0].skipped);
      REQUIRE(outcome.cells[0].skipped.empty());
      std::string all;
      for (const std::string& idle : outcome.cells[0].idle) all += idle;
      CAPTURE(cut.text(), all);
      CHECK(all.empty() == told.empty());
      CHECK(all.find(told) != std::string::npos);
    }
}

TEST_CASE("prompts do not share their luck, and one prompt has the same in every run") {
  Place one("llama_rope_llama3"), other("llama_rope_llama3");
  std::swap(other.prompt.ids.front(), other.prompt.ids.back());
  REQUIRE(one.prompt.ids != other.prompt.ids);
  other.trace = other.read();
  const auto kept = [](Place& place, std::uint64_t seed) {
    LoopRequest request = Place::request({"random"}, {"6"});
    request.decisions = true;
    request.seed = seed;
    const LoopOutcome outcome = place.run(request, {});
    std::vector<std::vector<std::int32_t>> out;
    for (const auto& lane : outcome.cells[0].modes[0].resident_intervals) out.push_back(after_cut(lane));
    return out;
  };
  CHECK(kept(one, 3) == kept(one, 3));
  CHECK(kept(one, 3) != kept(one, 4));
  CHECK(kept(one, 3) != kept(other, 3));
}

TEST_CASE("a cache of the prompt's size loses something once it must evict") {
  Place place("llama_rope_llama3");
  const LoopOutcome outcome = place.run({"random", "streaming_llm"}, {"6"}, {trace::Cut::At::position, 12});
  for (const LoopCell& cell : outcome.cells) {
    REQUIRE(cell.skipped.empty());
    CHECK(cell.kept_tokens == 6);
    CHECK(cell.modes[0].held_tokens == 6);
    CHECK(cell.modes[0].measures[0].kl > 0);
    for (const std::uint64_t resident : cell.modes[0].resident)
      CHECK(resident == 6ULL * place.golden.config.n_layers * place.golden.config.n_kv_heads);
  }
}

TEST_CASE("teacher mode follows the given answer, greedy mode does not") {
  Place place("llama_rope_llama3");
  const std::vector<std::int32_t> answer = {3, 1, 4};
  const LoopOutcome outcome = place.run({"h2o"}, {"8"}, {}, 1, answer);
  CHECK(outcome.references[0].tokens == answer);
  CHECK(outcome.cells[0].modes[0].tokens == answer);
  CHECK(outcome.cells[0].modes[0].measures.size() == 3);
  CHECK(outcome.cells[0].modes[1].tokens.size() == Place::kNew);
}

TEST_CASE("policies that a running model cannot serve are named with the reason") {
  Place place("llama_rope_llama3");
  const LoopOutcome outcome = place.run(
      {"h2o", "optimal", "h2o(feedback=raw)", "kvcrush(base=h2o(feedback=raw))", "h2o(prompt=stream)"},
      {"10"});
  CHECK(outcome.cells[0].skipped.empty());
  using Catch::Contains;
  CHECK_THAT(outcome.cells[1].skipped, Contains("optimal: knows the future"));
  CHECK_THAT(outcome.cells[2].skipped, Contains("feedback=raw"));
  CHECK_THAT(outcome.cells[3].skipped, Contains("feedback=raw"));
  CHECK(outcome.cells[4].skipped.empty());
  CHECK(outcome.cells[4].prefill == Prefill::stream);
  CHECK_THROWS_AS(place.run({"optimal"}, {"10"}), Error);
}

TEST_CASE("attention over slots, worked by hand") {
  // q.k * 0.5: ln 2, ln 3 and an unseen slot: weights 2/5 and 3/5.
  const float two = 2 * std::log(2.0F), three = 2 * std::log(3.0F), one = 1;
  const float values[] = {10, 20, 40};
  const SlotRow slots[] = {{&two, &values[0]}, {}, {&three, &values[1]}};
  SlotRows rows;
  float out = 0;
  rows.attend({.scale = 0.5}, {&one, 1, 1, 1}, slots, 1, &out);
  CHECK(rows.weights().row(0)[0] == Approx(0.4));
  CHECK(rows.weights().row(0)[1] == 0);
  CHECK(rows.weights().row(0)[2] == Approx(0.6));
  CHECK(out == Approx(16));
}

TEST_CASE("measures of a token, worked by hand") {
  const std::vector<float> full = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const std::vector<float> cell = {std::log(0.25F), std::log(0.5F), std::log(0.25F)};
  const TokenMeasures at = measure_token(full, cell, 0);
  CHECK(at.kl == Approx(0.5 * std::log(2.0) - 0.25 * std::log(2.0)));
  CHECK(at.log_p == Approx(std::log(0.25)));
  CHECK(at.log_p_full == Approx(std::log(0.5)));
  CHECK(at.rank == 1);
  CHECK_FALSE(at.same_top);
  CHECK(measure_token(full, full, 2).kl == 0);
  CHECK(margin(full) == Approx(std::log(2.0)));
}

}  // namespace kvsim::sim::test_closed_loop
