// The caches that decide for a model elsewhere hold at every step what a replay of the same tokens holds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/loop/cell_caches.hpp"
#include "sim/replay/plan.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::sim::test_cell_caches {
namespace {

using policy::Position;
using test::TraceShape;
using trace::Tensor;
using Held = std::vector<Position>;

constexpr std::uint64_t kPrompt = 150, kDecode = 40;

Cell cell_of(const std::string& policy, const std::string& budget) {
  return {policy::parse_composition(policy, policy::builtin()), parse_budget(budget)};
}

Held sorted(std::span<const Position> slots) {
  Held held(slots.begin(), slots.end());
  std::sort(held.begin(), held.end());
  return held;
}

/// A model that is nothing but a trace: its tokens arrive, and attend by the textbook.
class Elsewhere {
 public:
  Elsewhere(const TraceShape& shape, const Cell& cell, bool begins = true)
      : whole_(test::random_trace(shape)), prompt_(prompt_of(shape)), model_(whole_.header().model) {
    caches_ = std::make_unique<CellCaches>(
        prompt_.header(),
        CellCachesRequest{.cell = cell, .seed = 7, .threads = 2, .length = shape.prompt + shape.decode});
    if (!begins) return;
    Progress progress;
    caches_->begin(prompt_, progress);
    if (caches_->prefill() == Prefill::stream)
      for (Position position = 0; position < static_cast<Position>(shape.prompt); ++position)
        arrive(position);
  }

  CellCaches& caches() { return *caches_; }
  void rewind() {
    caches_->rewind();
    moved_.clear();
  }

  void arrive(Position position) {
    for (std::uint32_t layer = 0; layer < model_.n_layers; ++layer) {
      for (std::size_t lane = 0; lane < model_.n_kv_heads; ++lane) {
        const std::span<const Position> slots = caches_->slots(layer, lane);
        moved_.try_emplace({layer, lane}, slots.begin(), slots.end());  // as begin() has left them
      }
      const std::vector<float> keys = token(Tensor::key, layer, position),
                               values = token(Tensor::value, layer, position),
                               queries = token(Tensor::query, layer, position);
      const std::size_t dim = model_.head_dim;
      const Token arriving{position,
                           {keys.data(), model_.n_kv_heads, dim, dim},
                           {values.data(), model_.n_kv_heads, dim, dim},
                           {queries.data(), model_.n_q_heads, dim, dim}};
      move_slots(layer, caches_->admit(layer, arriving), position);
      caches_->attended(layer, arriving,
                        caches_->needs_weights() ? weights(layer, queries) : std::vector<float>{});
    }
  }

 private:
  static trace::MemoryTrace prompt_of(TraceShape shape) {
    shape.decode = 0;
    return test::random_trace(shape);
  }
  static std::span<const float> row(trace::MemoryTrace& from, Tensor tensor, std::uint32_t layer,
                                    std::uint32_t head, std::size_t position) {
    const std::size_t dim = from.header().model.head_dim;
    return from.rows(tensor, layer, head).subspan(position * dim, dim);
  }
  std::vector<float> token(Tensor tensor, std::uint32_t layer, Position position) {
    std::vector<float> out;
    for (std::uint32_t head = 0; head < (tensor == Tensor::query ? model_.n_q_heads : model_.n_kv_heads);
         ++head) {
      const auto numbers = row(whole_, tensor, layer, head, static_cast<std::size_t>(position));
      out.insert(out.end(), numbers.begin(), numbers.end());
    }
    return out;
  }

  /// What a caller does with its keys: here with the positions that they are of.
  void move_slots(std::uint32_t layer, const std::vector<CellCaches::Arrived>& arrived, Position position) {
    for (const CellCaches::Arrived& unit : arrived)
      for (std::size_t lane = unit.first_lane; lane < unit.first_lane + unit.n_lanes; ++lane) {
        Held& mine = moved_[{layer, lane}];
        const std::span<const Position> slots = caches_->slots(layer, lane);
        std::vector<std::size_t> others(unit.victims.begin(), unit.victims.end());
        if (others.empty()) mine.push_back(-1);
        if (!others.empty()) others.erase(others.begin());
        std::sort(others.rbegin(), others.rend());
        for (const std::size_t victim : others)
          mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(victim));
        mine.at(unit.own_slot) = position;
        CHECK(std::equal(mine.begin(), mine.end(), slots.begin(), slots.end()));
      }
  }

  std::vector<float> weights(std::uint32_t layer, const std::vector<float>& queries) {
    std::vector<float> out;
    for (std::uint32_t head = 0; head < model_.n_q_heads; ++head) {
      const std::uint32_t lane = head / model_.group();
      std::vector<double> row_weights;
      double sum = 0;
      for (const Position position : caches_->slots(layer, lane)) {
        const auto key = row(whole_, Tensor::key, layer, lane, static_cast<std::size_t>(position));
        double product = 0;
        for (std::size_t c = 0; c < key.size(); ++c)
          product += static_cast<double>(queries[head * key.size() + c]) * static_cast<double>(key[c]);
        row_weights.push_back(std::exp(product * model_.attn_scale));
        sum += row_weights.back();
      }
      for (const double weight : row_weights) out.push_back(static_cast<float>(weight / sum));
    }
    return out;
  }

  trace::MemoryTrace whole_, prompt_;
  const trace::Model& model_;
  std::unique_ptr<CellCaches> caches_;
  std::map<std::pair<std::size_t, std::size_t>, Held> moved_;
};

Outcome replayed(const TraceShape& shape, const Cell& cell) {
  const trace::MemoryTrace whole = test::random_trace(shape);
  Request request;
  request.cells = {cell};
  request.seed = 7;
  request.decisions = true;
  Progress progress;
  return replay(trace::Sequence(whole), request, progress);
}

Held held_at(const std::vector<ResidentInterval>& intervals, std::uint32_t step) {
  Held held;
  for (const ResidentInterval& interval : intervals)
    if (interval.first <= step && step < interval.last) held.push_back(interval.position);
  return held;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& policy, const std::string& budget = "50%", std::size_t length = 300) {
  return refusal([&] {
    CellCaches(test::random_trace({.prompt = kPrompt, .decode = 0}).header(),
               {.cell = cell_of(policy, budget), .length = length});
  });
}

}  // namespace

TEST_CASE("caches for a model elsewhere hold what a replay of its tokens holds") {
  const TraceShape shape{.prompt = kPrompt, .decode = kDecode, .output_weights = true};
  std::size_t compared = 0, streamed = 0;
  for (const std::string& policy : test::every_policy()) {
    CAPTURE(policy);
    const Cell cell = cell_of(policy, "50%");
    const Outcome expected = replayed(shape, cell);
    if (!expected.cells[0].skipped.empty() || reads_full_rows(cell.composition.eviction) ||
        cell.composition.needs().surprises) {
      CHECK_FALSE(refusal([&] { Elsewhere(shape, cell); }).empty());
      continue;
    }
    Elsewhere model(shape, cell);
    for (std::uint32_t step = 0; step <= kDecode; ++step) {
      if (step > 0) model.arrive(static_cast<Position>(kPrompt + step - 1));
      for (std::size_t lane = 0; lane < 4; ++lane)
        REQUIRE(sorted(model.caches().slots(lane / 2, lane % 2)) ==
                held_at(expected.cells[0].resident_intervals[lane], step));
    }
    ++compared;
    if (model.caches().prefill() == Prefill::stream) ++streamed;
  }
  CHECK(compared > 60);
  CHECK(streamed > 3);
}

TEST_CASE("caches that begin together hold what each holds that begins alone, and go on so") {
  constexpr std::uint64_t kSteps = 12;
  const TraceShape shape{.prompt = kPrompt, .decode = kSteps, .output_weights = true};
  const trace::MemoryTrace prompt =
      test::random_trace({.prompt = kPrompt, .decode = 0, .output_weights = true});
  std::vector<std::unique_ptr<Elsewhere>> together, alone;
  for (const char* budget : {"50%", "30%"})
    for (const std::string& policy : test::every_policy())
      for (auto* models : {&together, &alone})
        if (!refusal([&] {
               auto made = std::make_unique<Elsewhere>(shape, cell_of(policy, budget), false);
               if (made->caches().prefill() == Prefill::dense) models->push_back(std::move(made));
             }).empty())
          break;
  std::vector<CellCaches*> all;
  for (const auto& each : together) all.push_back(&each->caches());
  Progress progress;
  const std::vector<std::string> refused = CellCaches::begin_together(all, prompt, progress);
  REQUIRE(refused.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i)
    CHECK(refusal([&] { alone[i]->caches().begin(prompt, progress); }) == refused[i]);
  const auto compare = [&] {
    std::size_t begun = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CAPTURE(i);
      if (!refused[i].empty()) continue;
      ++begun;
      for (std::size_t lane = 0; lane < 4; ++lane)
        CHECK(std::ranges::equal(together[i]->caches().slots(lane / 2, lane % 2),
                                 alone[i]->caches().slots(lane / 2, lane % 2)));
    }
    return begun;
  };
  CHECK(compare() > 100);
  // A token at a time through all caches, so that those of one policy take turns.
  for (std::size_t step = 0; step < kSteps; ++step)
    for (auto* models : {&together, &alone})
      for (std::size_t i = 0; i < alone.size(); ++i)
        if (refused[i].empty()) (*models)[i]->arrive(static_cast<Position>(kPrompt + step));
  compare();
}

TEST_CASE("rewinding goes back to the end of the prompt") {
  const TraceShape shape{.prompt = kPrompt, .decode = kDecode};
  Elsewhere model(shape, cell_of("h2o", "50%"));
  const auto all = [&] {
    std::vector<Held> held;
    for (std::size_t lane = 0; lane < 4; ++lane)
      held.push_back(sorted(model.caches().slots(lane / 2, lane % 2)));
    return held;
  };
  const std::vector<Held> at_first = all();
  const auto go_on = [&] {
    for (std::size_t i = 0; i < kDecode; ++i) model.arrive(static_cast<Position>(kPrompt + i));
    return all();
  };
  const std::vector<Held> at_end = go_on();
  CHECK(at_end != at_first);
  model.rewind();
  CHECK(all() == at_first);
  CHECK(go_on() == at_end);
}

TEST_CASE("the last queries that are needed are those that policies and allocations observe") {
  const trace::Header header = trace::plain_header(test::random_trace({}).header().model, 200, 0);
  const auto first = [&](const char* policy) {
    return CellCaches(header, {.cell = cell_of(policy, "50%"), .length = 300}).first_query();
  };
  CHECK(first("keydiff") == 199);           // none but the last row, which is measured
  CHECK(first("snapkv(window=4)") == 192);  // from the block that the window begins in
  CHECK(first("snapkv(window=32)") == 128);
  CHECK(first("keydiff+xkv") <= 192);
  CHECK(first("h2o") == 0);
  CHECK(first("expected_attention") == 0);
}

TEST_CASE("what a running model does not have is refused") {
  CHECK(refusal("snapkv").empty());
  CHECK_THAT(refusal("optimal"), Catch::Contains("knows the future"));
  CHECK_THAT(refusal("h2o(feedback=raw)"), Catch::Contains("feedback=raw"));
  CHECK_THAT(refusal("snapkv+kivi"),
             Catch::Contains("how tokens are stored") && Catch::Contains("kvsim evaluate"));
  CHECK_THAT(refusal("snapkv+quest"), Catch::Contains("which tokens are read"));
  CHECK_THAT(refusal("kvzip+one_threshold"), Catch::Contains("second pass"));
  CHECK_THAT(refusal("sirllm"), Catch::Contains("how probable"));
  CHECK_THAT(refusal("h2o(prompt=stream)+xkv"), Catch::Contains("measures the whole prompt"));
  CHECK_THAT(refusal("snapkv(window=20)", "4"), Catch::Contains("keeps 20 tokens in every lane"));
  CHECK_THAT(refusal("snapkv", "50%", 10), Catch::Contains("150 tokens") && Catch::Contains("10 at most"));
}

}  // namespace kvsim::sim::test_cell_caches
