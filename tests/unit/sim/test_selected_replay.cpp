// Tests replay of cells with a selection against a slow one: one lane at a time, in double, with sets of
// positions instead of slots, and choices written from their definition.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/replay/plan.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"
#include "tests/support/study.hpp"

namespace kvsim::test_selected_replay {

namespace {

using Vector = std::vector<double>;
using policy::Position;

/// What a query head reads of the slots: the rule that is tested, from its definition.
using Choice = std::function<std::set<Position>(const std::vector<Position>& slots, const Vector& query,
                                                const test::Rows& keys)>;

std::set<Position> highest(const std::vector<Position>& among, const Vector& scores, std::size_t n) {
  std::vector<std::size_t> order(among.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::set<Position> out;
  for (std::size_t i = 0; i < std::min(n, order.size()); ++i) out.insert(among[order[i]]);
  return out;
}

Choice top(std::size_t n) {
  return [n](const std::vector<Position>& slots, const Vector& query, const test::Rows& keys) {
    Vector scores;
    for (const Position position : slots)
      scores.push_back(std::inner_product(query.begin(), query.end(),
                                          keys[static_cast<std::size_t>(position)].begin(), 0.0));
    return highest(slots, scores, n);
  };
}

Choice quest(std::size_t read, std::size_t page) {
  return [=](const std::vector<Position>& slots, const Vector& query, const test::Rows& keys) {
    if (read >= slots.size()) return std::set<Position>(slots.begin(), slots.end());
    std::vector<Position> numbers;
    Vector bounds;
    for (std::size_t first = 0; first < slots.size(); first += page) {
      numbers.push_back(static_cast<Position>(first));
      bounds.push_back(0);
      for (std::size_t c = 0; c < query.size(); ++c) {
        double most = -1e300;
        for (std::size_t slot = first; slot < std::min(first + page, slots.size()); ++slot)
          most = std::max(most, query[c] * keys[static_cast<std::size_t>(slots[slot])][c]);
        bounds.back() += most;
      }
    }
    std::set<Position> out;
    for (const Position first : highest(numbers, bounds, read / page))
      for (std::size_t slot = static_cast<std::size_t>(first);
           slot < std::min(static_cast<std::size_t>(first) + page, slots.size()); ++slot)
        out.insert(slots[slot]);
    return out;
  };
}

struct SlowReads {
  double attention_loss = 0, attention_loss_oracle = 0, output_error = 0, output_cosine = 0;
  double read_tokens = 0, loaded_tokens = 0, hits = 0, recall = 0;
  sim::PaidAttention evidence;
  sim::DirectionOutcome direction;
  std::size_t held = 0;
};

SlowReads slow_lane(const trace::Sequence& sequence, const policy::Part& part, const Choice& choice,
                    std::uint32_t layer, std::uint32_t head, std::size_t budget, std::uint64_t seed) {
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length(), group = model.group();
  policy::CacheUnit unit;
  unit.layer = static_cast<int>(layer);
  unit.n_layers = static_cast<int>(model.n_layers);
  unit.first_kv_head = static_cast<int>(head);
  unit.group = static_cast<int>(group);
  unit.head_dim = static_cast<int>(model.head_dim);
  unit.value_dim = static_cast<int>(model.v_head_dim);
  unit.span = static_cast<std::size_t>(std::max(model.layer_window[layer], 0));
  unit.seed = seed;
  const auto eviction = part.make_eviction(unit);
  std::vector<test::Rows> a, q;
  for (std::uint32_t g = 0; g < group; ++g) {
    const auto query_head = static_cast<std::uint32_t>(head * group + g);
    a.push_back(test::attention(sequence, layer, query_head));
    q.push_back(test::read_all(sequence, trace::Tensor::query, layer, query_head));
  }
  const test::SlowPrompt view(sequence, layer, head, 1);
  test::show_slowly(*eviction, a, view);
  policy::Start start = eviction->start(budget);
  const test::Rows k = test::read_all(sequence, trace::Tensor::key, layer, head),
                   v = test::read_all(sequence, trace::Tensor::value, layer, head);
  std::vector<Position> slots = test::started(start, view);
  std::set<Position> before;
  SlowReads out;
  for (std::size_t t = sequence.first_measured(); t < sequence.length(); ++t) {
    const auto position = static_cast<Position>(t);
    if (t >= prompt) {
      test::arrive_slowly(start.decoder.get(),
                          {.position = position,
                           .slots = {},
                           .keys = {view.key(0, t).data(), 1, model.head_dim, model.head_dim},
                           .queries = {}},
                          budget + part.overshoot(), test::slow_first_held(sequence, layer, t + 1), slots);
    }
    std::set<Position> loaded;
    std::vector<std::set<Position>> read;
    for (std::size_t g = 0; g < group; ++g) {
      read.push_back(choice(slots, q[g][t], k));
      read[g].insert(position);
      loaded.insert(read[g].begin(), read[g].end());
      const auto heads = static_cast<double>(group);
      const Vector row(a[g][t].begin(), a[g][t].begin() + static_cast<std::ptrdiff_t>(t + 1));
      const double sink = test::slow_sink(model, row);
      double mass = 0;
      Vector whole(model.v_head_dim), other(model.v_head_dim);
      for (std::size_t j = 0; j <= t; ++j)
        for (std::size_t c = 0; c < whole.size(); ++c) whole[c] += row[j] * v[j][c];
      for (const Position p : read[g]) {
        const auto at = static_cast<std::size_t>(p);
        mass += row[at];
        for (std::size_t c = 0; c < other.size(); ++c) other[c] += row[at] * v[at][c];
      }
      for (double& x : other) x /= mass + sink;
      double unread = 0;
      Vector left_out(model.v_head_dim);
      for (std::size_t j = 0; j <= t; ++j) {
        if (read[g].count(static_cast<Position>(j))) continue;
        unread += row[j];
        for (std::size_t c = 0; c < left_out.size(); ++c) left_out[c] += row[j] * v[j][c];
      }
      for (double& x : left_out) x /= unread;
      test::add_direction(unread, left_out, other, whole, out.direction);
      out.attention_loss += (1 - mass / (1 - sink)) / heads;
      out.attention_loss_oracle += (1 - test::top(row, read[g].size()) / (1 - sink)) / heads;
      out.output_error += test::distance(other, whole) / test::norm(whole) / heads;
      out.output_cosine += test::cosine(other, whole) / heads;
      out.read_tokens += static_cast<double>(read[g].size()) / heads;
      // Of entries that equal the least of the largest, any may be among these.
      Vector sorted = row;
      std::sort(sorted.rbegin(), sorted.rend());
      const double least = sorted[read[g].size() - 1];
      const auto equal = [&](double x) { return std::abs(x - least) <= 1e-12; };
      const auto places =
          std::count_if(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(read[g].size()), equal);
      std::ptrdiff_t found = 0, ties = 0;
      for (const Position p : read[g]) {
        const double x = row[static_cast<std::size_t>(p)];
        (equal(x) ? ties : found) += equal(x) || x > least ? 1 : 0;
      }
      found += std::min(ties, places);
      out.recall += static_cast<double>(found) / static_cast<double>(read[g].size()) / heads;
      for (std::size_t j = 0; j <= t; ++j) {
        if (!(sequence.flags(j) & trace::kFlagEvidence)) continue;
        out.evidence.paid += row[j] / heads;
        if (!read[g].count(static_cast<Position>(j))) out.evidence.dropped += row[j] / heads;
      }
    }
    out.loaded_tokens += static_cast<double>(loaded.size());
    for (const Position p : loaded) out.hits += static_cast<double>(before.count(p));
    before = loaded;
    if (t < prompt || !start.decoder) continue;
    std::vector<float> seen;
    std::vector<double> mass(group, 0.0);
    for (std::size_t g = 0; g < group; ++g) {
      mass[g] = test::slow_sink(model, a[g][t]);
      for (const Position p : slots) {
        seen.push_back(read[g].count(p) ? static_cast<float>(a[g][t][static_cast<std::size_t>(p)]) : 0.0F);
        mass[g] += static_cast<double>(seen.back());
      }
    }
    const auto own =
        static_cast<std::size_t>(std::find(slots.begin(), slots.end(), position) - slots.begin());
    start.decoder->observe({position,
                            slots,
                            own,
                            {seen.data(), group, slots.size(), slots.size()},
                            mass,
                            {view.key(0, t).data(), 1, model.head_dim, model.head_dim},
                            {view.value(0, t).data(), 1, model.v_head_dim, model.v_head_dim},
                            {}});
  }
  out.held = slots.size();
  return out;
}

void compare(const test::TraceShape& shape, const trace::Cut& cut = {}) {
  const trace::MemoryTrace trace = test::random_trace(shape);
  const trace::Sequence sequence(trace, 0, cut);
  const std::pair<std::string, Choice> rules[] = {
      {"top_tokens(read=5)", top(5)},
      {"quest(read=7,page=2,dense=0)", quest(7, 2)},
      {"quest(read=8,page=2,dense=0)", quest(8, 2)},
  };
  for (const auto& [selection, choice] : rules)
    for (const char* eviction :
         {"full", "h2o", "snapkv(window=4)", "tova(unit=lane)", "l2_norm", "streaming_llm(sinks=2)"}) {
      const sim::Request request = test::request_of({std::string(eviction) + "+" + selection}, {"14"}, 2);
      Progress progress;
      const sim::Outcome outcome = sim::replay(sequence, request, progress);
      REQUIRE(outcome.cells[0].skipped.empty());
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
        for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
          const sim::LaneOutcome& got = outcome.cells[0].lanes[layer * shape.kv_heads + head];
          const SlowReads expected =
              slow_lane(sequence, request.cells[0].composition.eviction, choice, layer, head,
                        got.budget_tokens, sim::prompt_seed(sequence, request.seed));
          CAPTURE(eviction, selection, layer, head);
          REQUIRE(got.read);
          CHECK(got.held_at_end == expected.held);
          CHECK(got.read->read_tokens == Approx(expected.read_tokens).epsilon(1e-12));
          CHECK(got.read->loaded_tokens == expected.loaded_tokens);
          CHECK(got.read->hits == expected.hits);
          CHECK(got.read->recall == Approx(expected.recall).epsilon(1e-12));
          CHECK(got.attention_loss == Approx(expected.attention_loss).margin(1e-4));
          CHECK(got.attention_loss_oracle == Approx(expected.attention_loss_oracle).margin(1e-4));
          CHECK(got.output_error == Approx(expected.output_error).margin(1e-4));
          CHECK(got.output_cosine == Approx(expected.output_cosine).margin(1e-4));
          CHECK(got.direction.weight == Approx(expected.direction.weight).epsilon(1e-4).margin(2e-4));
          CHECK(got.direction.error == Approx(expected.direction.error).epsilon(1e-4).margin(2e-4));
          CHECK(got.direction.cosine == Approx(expected.direction.cosine).margin(2e-4));
          CHECK(got.evidence.paid == Approx(expected.evidence.paid).margin(1e-4));
          CHECK(got.evidence.dropped == Approx(expected.evidence.dropped).margin(1e-4));
        }
    }
}

}  // namespace

TEST_CASE("replay of queries that read a part equals a slow one") {
  SECTION("grouped heads, evidence") {
    compare({.prompt = 30, .decode = 25, .context = 20, .evidence = {5, 6, 17}});
  }
  SECTION("a sliding window, one query head per lane") {
    compare({.layers = 2, .kv_heads = 1, .group = 1, .prompt = 21, .decode = 30, .layer_window = {-1, 7}});
  }
  SECTION("without steps after the prompt, the last prompt token is asked again") {
    compare({.prompt = 27, .decode = 0});
  }
  SECTION("sinks") {
    compare({.prompt = 24, .decode = 12, .sinks = true});
  }
  SECTION("values in keys") {
    compare({.kv_heads = 1, .group = 4, .prompt = 24, .decode = 12, .latent = true});
  }
}

TEST_CASE("a selection of everything is the same as none") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20, .output_weights = true});
  for (const std::string policy : {"full", "snapkv(window=4)", "h2o", "full+scalar(bits=4)",
                                   "snapkv(window=4)+kivi(group=4,residual=4)"}) {
    const sim::Outcome outcome = test::run(
        trace,
        test::request_of({policy, policy + "+quest(read=100%)", policy + "+top_tokens(read=60)"}, {"16"}));
    for (const std::size_t other : {1U, 2U})
      for (std::size_t lane = 0; lane < outcome.cells[0].lanes.size(); ++lane) {
        const sim::LaneOutcome &none = outcome.cells[0].lanes[lane], &all = outcome.cells[other].lanes[lane];
        CAPTURE(policy, other, lane);
        CHECK(all.kept_tokens == none.kept_tokens);
        CHECK(all.held_at_end == none.held_at_end);
        CHECK(all.read->read_tokens == static_cast<double>(none.attended_tokens));
        // The loss of an eviction is summed over the mean row, that of a selection head by head.
        CHECK(all.attention_loss == Approx(none.attention_loss).margin(1e-6));
        CHECK(all.output_error == Approx(none.output_error).margin(1e-6));
        if (policy != "full") continue;
        CHECK(all.attention_loss == 0);
        CHECK(all.output_error == 0);
        CHECK(all.direction.weight == 0);
        CHECK(all.output_cosine == none.output_cosine);
        CHECK(outcome.cells[other].layers[0].projected_error == 0);
        CHECK(all.read->recall == static_cast<double>(all.steps));
      }
  }
}

TEST_CASE("no selection of as many tokens has more attention than the highest logits") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 80, .decode = 20});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"full+top_tokens(read=12)", "full+quest(read=12,page=4,dense=0)",
                                         "full+random_tokens(read=12)", "full+recent_tokens(read=12)"},
                                        {"100%"}));
  for (std::size_t lane = 0; lane < outcome.cells[0].lanes.size(); ++lane) {
    const sim::LaneOutcome& best = outcome.cells[0].lanes[lane];
    for (const sim::CellOutcome& cell : outcome.cells)
      CHECK(cell.lanes[lane].attention_loss >= cell.lanes[lane].attention_loss_oracle - 1e-9);
    // The query's own token is read beside the twelve.
    CHECK(best.attention_loss <= outcome.cells[3].lanes[lane].attention_loss + 1e-9);
    CHECK(best.oracle_cosine >= 0.9 * static_cast<double>(best.steps));
  }
}

TEST_CASE("what reads a part depends neither on the other cells nor on threads") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 3, .prompt = 40, .decode = 33});
  const std::vector<std::string> policies{
      "full+quest(read=16,page=4,dense=1)", "h2o+top_tokens(read=6)",
      "snapkv(window=4)+kivi(group=4,residual=4)+quest(read=12,page=2,dense=0)", "full",
      "full+random_tokens(read=9)"};
  const sim::Outcome all = test::run(trace, test::request_of(policies, {"12", "24"}, 4));
  for (std::size_t cell = 0; cell < all.cells.size(); ++cell) {
    const sim::Outcome alone = test::run(trace, test::request_of({policies[cell % policies.size()]},
                                                                 {cell < policies.size() ? "12" : "24"}, 1));
    CAPTURE(policies[cell % policies.size()]);
    CHECK(test::numbers(alone.cells[0]) == test::numbers(all.cells[cell]));
    if (!alone.cells[0].lanes[0].read) continue;
    for (std::size_t lane = 0; lane < alone.cells[0].lanes.size(); ++lane) {
      CHECK(alone.cells[0].lanes[lane].read->recall == all.cells[cell].lanes[lane].read->recall);
      CHECK(alone.cells[0].lanes[lane].read->hits == all.cells[cell].lanes[lane].read->hits);
    }
  }
}

TEST_CASE("layers that choose for others give them what they choose for themselves") {
  // Of three layers the last reads what layer 1 chooses: in a trace in which both are alike, as if by itself.
  trace::MemoryTrace trace = test::random_trace({.layers = 4, .prompt = 60, .decode = 10});
  const trace::Tensor tensors[] = {trace::Tensor::query, trace::Tensor::key, trace::Tensor::value};
  for (const trace::Tensor tensor : tensors)
    for (std::uint32_t head = 0; head < (tensor == trace::Tensor::query ? 4U : 2U); ++head)
      std::ranges::copy(trace.rows(tensor, 2, head), trace.rows(tensor, 3, head).begin());
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"full+tidal(read=10)", "full+top_tokens(read=10)"}, {"100%"}));
  REQUIRE(outcome.cells[0].skipped.empty());
  for (const std::size_t lane : {6U, 7U}) {
    CHECK(outcome.cells[0].lanes[lane].attention_loss == outcome.cells[1].lanes[lane].attention_loss);
    CHECK(outcome.cells[0].lanes[lane].output_error == outcome.cells[1].lanes[lane].output_error);
    CHECK(outcome.cells[0].lanes[lane].attention_loss > 0);
  }
  for (const std::size_t lane : {0U, 3U, 5U}) CHECK(outcome.cells[0].lanes[lane].attention_loss == 0);
  const sim::Outcome refused = test::run(
      trace,
      test::request_of({"snapkv(window=4)+tidal", "full+scalar(bits=4,group=0)+tidal", "full"}, {"20"}));
  CHECK_THAT(refused.cells[0].skipped, Catch::Contains("lets one layer choose for others"));
  CHECK_THAT(refused.cells[1].skipped, Catch::Contains("by keys as they come"));
}

}  // namespace kvsim::test_selected_replay
