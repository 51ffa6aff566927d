// Tests replay of cells with a representation against a slow one: one lane at a time, in double, with tokens
// in a list instead of slots, and codes written from their definition.
#include <catch2/catch.hpp>
#include <list>

#include "sim/base/error.hpp"
#include "sim/replay/plan.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"
#include "tests/support/study.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::test_stored_replay {

namespace {

using Vector = std::vector<double>;

struct Rule {
  bool by_channel = false;
  std::size_t bits = 2, group = 4, residual = 8;
};

struct SlowToken {
  policy::Position position = 0;
  Vector key, value;
  bool key_waits = true, value_waits = true;  ///< not coded yet
};

void code(const std::vector<double*>& numbers, std::size_t bits) {
  Vector group;
  for (const double* x : numbers) group.push_back(*x);
  group = policy::test::slowly_coded(group, static_cast<int>(bits));
  for (std::size_t i = 0; i < group.size(); ++i) *numbers[i] = group[i];
}

/// The keys or the values of a lane, oldest first.
struct SlowSide {
  Rule rule;
  Vector SlowToken::*numbers;
  bool SlowToken::*waits;

  void begin(std::list<SlowToken>& held) const {
    const std::size_t n = held.size();
    const std::size_t exact = rule.by_channel ? n % rule.residual : std::min(n, rule.residual);
    code_oldest(held, n - exact);
  }
  void settle(std::list<SlowToken>& held) const {
    const auto waiting = static_cast<std::size_t>(
        std::count_if(held.begin(), held.end(), [&](const SlowToken& token) { return token.*waits; }));
    if (!rule.by_channel && waiting > rule.residual) code_oldest(held, waiting - rule.residual);
    if (rule.by_channel && waiting >= rule.residual) code_oldest(held, rule.residual);
  }

 private:
  void code_oldest(std::list<SlowToken>& held, std::size_t n) const {
    std::vector<SlowToken*> tokens;
    for (SlowToken& token : held)
      if (token.*waits && tokens.size() < n) tokens.push_back(&token);
    const std::size_t dim = n > 0 ? (tokens[0]->*numbers).size() : 0;
    if (rule.by_channel)
      for (std::size_t first = 0; first < n; first += rule.group)
        for (std::size_t c = 0; c < dim; ++c) {
          std::vector<double*> group;
          for (std::size_t i = first; i < first + rule.group; ++i) group.push_back(&(tokens[i]->*numbers)[c]);
          code(group, rule.bits);
        }
    else
      for (SlowToken* token : tokens)
        for (std::size_t first = 0; first < dim; first += rule.group) {
          std::vector<double*> group;
          for (std::size_t c = first; c < first + rule.group; ++c) group.push_back(&(token->*numbers)[c]);
          code(group, rule.bits);
        }
    for (SlowToken* token : tokens) token->*waits = false;
  }
};

struct SlowStored {
  double total_variation = 0, logit_squares = 0, top_overlap = 0, output_error = 0, output_cosine = 0;
  double key_error = 0, value_error = 0;
  std::uint64_t logits = 0;
  std::size_t held = 0;
};

std::set<std::size_t> largest(const Vector& row, std::size_t n) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(n, order.size()))};
}

SlowStored slow_lane(const trace::Sequence& sequence, const policy::Part& part, const Rule& keys,
                     const Rule& values, std::uint32_t layer, std::uint32_t head, std::size_t budget,
                     std::uint64_t seed) {
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
  const auto token_at = [&](policy::Position position) {
    const auto at = static_cast<std::size_t>(position);
    return SlowToken{position, k[at], v[at]};
  };
  std::vector<policy::Position> slots = test::started(start, view);
  std::list<SlowToken> held;  // oldest first
  for (const policy::Position position : slots) held.push_back(token_at(position));
  const SlowSide sides[] = {{keys, &SlowToken::key, &SlowToken::key_waits},
                            {values, &SlowToken::value, &SlowToken::value_waits}};
  for (const SlowSide& side : sides) side.begin(held);

  SlowStored out;
  for (std::size_t t = sequence.first_measured(); t < sequence.length(); ++t) {
    const auto position = static_cast<policy::Position>(t);
    if (t >= prompt) {
      const std::set<policy::Position> gone = test::arrive_slowly(
          start.decoder.get(),
          {.position = position,
           .slots = {},
           .keys = {view.key(0, t).data(), 1, model.head_dim, model.head_dim},
           .queries = {}},
          budget + part.overshoot(), test::slow_first_held(sequence, layer, t + 1), slots);
      std::erase_if(held, [&](const SlowToken& token) { return gone.count(token.position) > 0; });
      held.push_back(token_at(position));
    }
    std::list<SlowToken> attended = held;
    const bool beside =
        std::none_of(held.begin(), held.end(), [&](const SlowToken& x) { return x.position == position; });
    if (beside) attended.push_back(token_at(position));
    std::vector<Vector> stored(group, Vector(t + 1, 0.0));
    for (std::size_t g = 0; g < group; ++g) {
      const double sink = std::exp(static_cast<double>(model.sink(layer, head * group + g)));
      double sum = sink;
      for (const SlowToken& token : attended) {
        const auto at = static_cast<std::size_t>(token.position);
        const double logit = test::logit(model, q[g][t], token.key),
                     exact = test::logit(model, q[g][t], k[at]);
        out.logit_squares += (logit - exact) * (logit - exact);
        out.logits += 1;
        stored[g][at] = std::exp(logit);
        sum += stored[g][at];
      }
      for (double& p : stored[g]) p /= sum;
      double variation = 0;
      for (std::size_t j = 0; j <= t; ++j) variation += std::abs(a[g][t][j] - stored[g][j]) / 2;
      variation += std::abs(test::slow_sink(model, a[g][t]) - sink / sum) / 2;
      out.total_variation += variation / static_cast<double>(group);
      const Vector row(a[g][t].begin(), a[g][t].begin() + static_cast<std::ptrdiff_t>(t + 1));
      const std::size_t visible = t + 1 - test::slow_first_held(sequence, layer, t + 1);
      const std::set<std::size_t> top = largest(row, std::min<std::size_t>(32, visible));
      std::size_t shared = 0;
      // A token that is not held is not among the largest, even where weights are 0.
      Vector of_held = stored[g];
      for (std::size_t j = 0; j <= t; ++j)
        if (std::none_of(attended.begin(), attended.end(),
                         [&](const SlowToken& x) { return x.position == static_cast<policy::Position>(j); }))
          of_held[j] = -1;
      const std::size_t n = std::min<std::size_t>(32, attended.size());
      for (const std::size_t j : largest(of_held, n)) shared += top.count(j);
      out.top_overlap += static_cast<double>(shared) / static_cast<double>(top.size() * group);
      Vector whole(model.v_head_dim), other(model.v_head_dim);
      for (std::size_t j = 0; j <= t; ++j)
        for (std::size_t c = 0; c < whole.size(); ++c) whole[c] += a[g][t][j] * v[j][c];
      for (const SlowToken& token : attended)
        for (std::size_t c = 0; c < other.size(); ++c)
          other[c] += stored[g][static_cast<std::size_t>(token.position)] * token.value[c];
      out.output_error += test::distance(other, whole) / test::norm(whole) / static_cast<double>(group);
      out.output_cosine += test::cosine(other, whole) / static_cast<double>(group);
    }
    if (t < prompt) continue;
    if (start.decoder) {
      std::vector<float> seen;
      for (const Vector& row : stored)
        for (const policy::Position p : slots)
          seen.push_back(static_cast<float>(row[static_cast<std::size_t>(p)]));
      const std::vector<double> mass(group, 1.0);
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
    for (const SlowSide& side : sides) side.settle(held);
  }
  double key_squares = 0, value_squares = 0;
  for (const SlowToken& token : held) {
    const auto at = static_cast<std::size_t>(token.position);
    out.key_error += std::pow(test::distance(token.key, k[at]), 2);
    out.value_error += std::pow(test::distance(token.value, v[at]), 2);
    key_squares += std::pow(test::norm(k[at]), 2);
    value_squares += std::pow(test::norm(v[at]), 2);
  }
  out.key_error = std::sqrt(out.key_error / key_squares);
  out.value_error = std::sqrt(out.value_error / value_squares);
  out.held = held.size();
  return out;
}

void compare(const test::TraceShape& shape, const trace::Cut& cut = {}) {
  const trace::MemoryTrace trace = test::random_trace(shape);
  const trace::Sequence sequence(trace, 0, cut);
  struct Codes {
    std::string text;
    Rule keys, values;
  };
  const std::vector<Codes> codes{
      {"kivi(bits=2,group=4,residual=8)", {true, 2, 4, 8}, {false, 2, 4, 8}},
      {"kivi(bits=4,group=4,residual=4,keys=token,values=channel)", {false, 4, 4, 4}, {true, 4, 4, 4}},
      {"scalar(bits=3,group=8,residual=2)", {false, 3, 8, 2}, {false, 3, 8, 2}},
  };
  for (const Codes& code : codes)
    for (const char* eviction :
         {"full", "h2o", "snapkv(window=4)", "tova(unit=lane)", "l2_norm", "streaming_llm(sinks=2)"}) {
      const sim::Request request = test::request_of({std::string(eviction) + "+" + code.text}, {"10"}, 2);
      Progress progress;
      const sim::Outcome outcome = sim::replay(sequence, request, progress);
      REQUIRE(outcome.cells[0].skipped.empty());
      const policy::Composition& composition = request.cells[0].composition;
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
        for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
          const sim::LaneOutcome& got = outcome.cells[0].lanes[layer * shape.kv_heads + head];
          const SlowStored expected =
              slow_lane(sequence, composition.eviction, code.keys, code.values, layer, head,
                        got.budget_tokens, sim::prompt_seed(sequence, request.seed));
          CAPTURE(composition.name, code.text, layer, head);
          REQUIRE(got.stored);
          CHECK(got.held_at_end == expected.held);
          CHECK(got.stored->total_variation == Approx(expected.total_variation).margin(1e-4));
          CHECK(got.stored->top_overlap == Approx(expected.top_overlap).margin(1e-9));
          CHECK(got.stored->logits == expected.logits);
          CHECK(got.stored->logit_squares == Approx(expected.logit_squares).epsilon(1e-3).margin(1e-6));
          CHECK(got.output_error == Approx(expected.output_error).margin(1e-4));
          CHECK(got.output_cosine == Approx(expected.output_cosine).margin(1e-4));
          CHECK(std::sqrt(got.stored->key_error / got.stored->key_squares) ==
                Approx(expected.key_error).margin(1e-5));
          CHECK(std::sqrt(got.stored->value_error / got.stored->value_squares) ==
                Approx(expected.value_error).margin(1e-5));
        }
    }
}

}  // namespace

TEST_CASE("replay over what is stored equals a slow one") {
  SECTION("grouped heads") {
    compare({.prompt = 30, .decode = 25});
  }
  SECTION("a sliding window, one query head per lane") {
    compare({.layers = 2, .kv_heads = 1, .group = 1, .prompt = 21, .decode = 30, .layer_window = {-1, 7}});
    compare({.layers = 1, .prompt = 21, .decode = 12, .softcap = 1.5});
    compare({.layers = 1, .prompt = 21, .decode = 12, .sinks = true});
  }
  SECTION("without steps after the prompt, the last prompt token is asked again") {
    compare({.prompt = 27, .decode = 0});
  }
}

TEST_CASE("what is stored in 16 bits costs nothing, and total variation is the attention loss then") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20, .output_weights = true});
  for (const char* eviction : {"full", "h2o", "snapkv(window=4)", "tova", "window"}) {
    const sim::Outcome outcome =
        test::run(trace, test::request_of({eviction, std::string(eviction) + "+scalar(bits=16)"}, {"12"}));
    const sim::CellOutcome &exact = outcome.cells[0], &stored = outcome.cells[1];
    for (std::size_t i = 0; i < exact.lanes.size(); ++i) {
      CAPTURE(eviction, i);
      CHECK_FALSE(exact.lanes[i].stored);
      REQUIRE(stored.lanes[i].stored);
      CHECK(stored.lanes[i].held_at_end == exact.lanes[i].held_at_end);
      CHECK(stored.lanes[i].stored->total_variation == Approx(exact.lanes[i].attention_loss).margin(2e-5));
      CHECK(stored.lanes[i].stored->logit_squares == 0);
      CHECK(stored.lanes[i].stored->key_error == 0);
      CHECK(stored.lanes[i].stored->value_error == 0);
      CHECK(stored.lanes[i].output_error == Approx(exact.lanes[i].output_error).margin(2e-4));
      CHECK(stored.lanes[i].stored->held_bits ==
            static_cast<double>(8 * outcome.token_bytes * exact.lanes[i].held_at_end));
    }
    for (std::size_t layer = 0; layer < exact.layers.size(); ++layer)
      CHECK(stored.layers[layer].projected_error == Approx(exact.layers[layer].projected_error).margin(2e-4));
  }
}

TEST_CASE("a merge that lets nothing pass is its eviction, and merging everything is not") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  for (const char* eviction : {"h2o", "snapkv(window=4)", "tova", "scissorhands(window=4)"}) {
    CAPTURE(eviction);
    const auto with = [&](const char* merge) { return std::string(eviction) + merge; };
    const sim::Outcome outcome =
        test::run(trace, test::request_of({with("+scalar(bits=16)"), with("+d2o_merge(gate=fixed,tau=1.5)"),
                                           with("+d2o_merge(gate=fixed,tau=-1)")},
                                          {"12"}));
    double all = 0;
    for (std::size_t i = 0; i < outcome.cells[0].lanes.size(); ++i) {
      const sim::LaneOutcome &alone = outcome.cells[0].lanes[i], &none = outcome.cells[1].lanes[i];
      CHECK(none.stored->total_variation == alone.stored->total_variation);
      CHECK(none.output_error == alone.output_error);
      CHECK(none.stored->held_bits == alone.stored->held_bits);
      CHECK(none.stored->key_error == 0);
      all += outcome.cells[2].lanes[i].stored->key_error;
    }
    CHECK(all > 0);
  }
}

TEST_CASE(
    "replay reads the repaired mass: with equal keys and log c, merging what is evicted costs nothing") {
  trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head) {
      const std::span<float> keys = trace.rows(trace::Tensor::key, layer, head);
      for (std::size_t i = 8; i < keys.size(); ++i) keys[i] = keys[i - 8];
    }
  // All keep the last prompt token: if it were merged, its own query would attend it a second time beside
  // that.
  for (const char* eviction : {"h2o", "tova(window=1)", "snapkv(window=4)", "h2o(unit=layer,phase=post)"}) {
    CAPTURE(eviction);
    const auto with = [&](const char* merge) { return std::string(eviction) + merge; };
    const sim::Outcome outcome =
        test::run(trace, test::request_of({with("+d2o_merge(gate=fixed,tau=-1,mass=log)"),
                                           with("+d2o_merge(gate=fixed,tau=-1)"),
                                           with("+d2o_merge(gate=fixed,tau=-1,mass=count)")},
                                          {"12"}));
    for (std::size_t i = 0; i < outcome.cells[0].lanes.size(); ++i) {
      const auto error = [&](std::size_t cell) {
        const sim::LaneOutcome& lane = outcome.cells[cell].lanes[i];
        return lane.output_error / static_cast<double>(lane.steps);
      };
      CHECK(error(0) < 1e-5);
      CHECK(error(1) > 1e-2);
      CHECK(error(2) > 1e-2);
    }
  }
}

TEST_CASE("d2o merges in the layers that it compresses, and holds what d2o.no_merge does in the others") {
  const trace::MemoryTrace trace = test::random_trace({.layers = 5, .prompt = 40, .decode = 20});
  const sim::Outcome outcome = test::run(trace, test::request_of({"d2o", "d2o.no_merge"}, {"30"}));
  for (const sim::CellOutcome& cell : outcome.cells) REQUIRE(cell.skipped.empty());
  for (std::size_t lane = 0; lane < 10; ++lane) {
    const sim::LaneOutcome &whole = outcome.cells[0].lanes[lane], &part = outcome.cells[1].lanes[lane];
    const std::size_t layer = lane / 2;
    const bool exempt = layer < 2 || layer == 4;
    CAPTURE(layer);
    CHECK((whole.stored->key_error == 0) == exempt);
    CHECK((whole.output_error == Approx(part.output_error).margin(1e-4)) == exempt);
    CHECK(whole.held_at_end == part.held_at_end);
  }
}

TEST_CASE("results of a cell with a representation depend neither on threads nor on its company") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  const std::string text = "h2o+kivi(group=4,residual=8)";
  const sim::Outcome alone = test::run(trace, test::request_of({text}, {"12"}));
  const sim::Outcome among = test::run(
      trace, test::request_of({"full", "tova+scalar(group=8)", text, "h2o", "full+kivi(group=4,residual=8)",
                               "h2o+d2o_merge", "h2o+elastic_merge"},
                              {"9", "12"}, 4));
  const auto numbers = [](const sim::CellOutcome& cell) {
    std::vector<double> all = test::numbers(cell);
    for (const sim::LaneOutcome& lane : cell.lanes) {
      const sim::StoredOutcome& stored = *lane.stored;
      for (const double x : {stored.total_variation, stored.logit_squares, stored.top_overlap,
                             stored.key_error, stored.value_error, stored.held_bits, stored.kept_bits})
        all.push_back(x);
    }
    return all;
  };
  CHECK(numbers(alone.cells[0]) == numbers(among.cells[9]));
}

namespace {

std::vector<double> stored_numbers(const sim::CellOutcome& cell) {
  std::vector<double> all = test::numbers(cell);
  for (const sim::LaneOutcome& lane : cell.lanes) {
    const sim::StoredOutcome& stored = *lane.stored;
    for (const double x : {stored.total_variation, stored.logit_squares, stored.top_overlap, stored.key_error,
                           stored.value_error, stored.held_bits, stored.kept_bits})
      all.push_back(x);
  }
  return all;
}

/// For vectors of 8 numbers.
const std::vector<std::string> kSmall = {"kivi(group=4,residual=8)",
                                         "mikv",
                                         "think(window=4,rows=4)",
                                         "zipcache(every=7,recent=0.2,random=0.3)",
                                         "cam(tokens=5,attention=sum)",
                                         "ems_merge(tau=-1,window=5)",
                                         "fixed_kernel_merge",
                                         "fitted_values",
                                         "gear(group=4,buffer=8,outliers=0.25)"};

}  // namespace

TEST_CASE("fixed_kernel_merge without its mixtures is its eviction, in every bit") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"h2o+scalar(bits=16)", "h2o+fixed_kernel_merge(blend=0)",
                                         "h2o+fixed_kernel_merge", "h2o+fixed_kernel_merge(blend=1)"},
                                        {"12"}));
  const std::vector<double> alone = stored_numbers(outcome.cells[0]);
  CHECK(stored_numbers(outcome.cells[1]) == alone);
  CHECK(stored_numbers(outcome.cells[2]) != alone);
  CHECK(stored_numbers(outcome.cells[3]) != stored_numbers(outcome.cells[2]));
}

TEST_CASE("codes that learn of the prompt depend neither on threads nor on their company") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  for (const std::string& representation : kSmall) {
    // Keyformer reads every row, so that sums over columns do not stand in for them.
    const std::string text = "h2o+" + representation;
    CAPTURE(text);
    const sim::Outcome alone = test::run(trace, test::request_of({text}, {"12"}));
    const sim::Outcome among =
        test::run(trace, test::request_of({"full", "tova+scalar(group=8)", text, "h2o", "keyformer",
                                           "full+kivi(group=4,residual=8)"},
                                          {"9", "12"}, 4));
    CHECK(stored_numbers(alone.cells[0]) == stored_numbers(among.cells[8]));
  }
}

TEST_CASE("lanes that share a set are stored as they would be apart") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 20});
  for (const std::string& representation : kSmall) {
    CAPTURE(representation);
    // The budget holds everything, so that both hold the same.
    const sim::Outcome outcome = test::run(
        trace,
        test::request_of({"h2o(unit=lane)+" + representation, "h2o(unit=layer)+" + representation}, {"60"}));
    REQUIRE(outcome.cells[0].skipped.empty());
    REQUIRE(outcome.cells[1].skipped.empty());
    const std::vector<double> apart = stored_numbers(outcome.cells[0]),
                              together = stored_numbers(outcome.cells[1]);
    REQUIRE(apart.size() == together.size());
    for (std::size_t i = 0; i < apart.size(); ++i) CHECK(together[i] == Approx(apart[i]).margin(1e-9));
  }
}

TEST_CASE("lanes that are stored together share what sending them takes") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .decode = 2});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"h2o(unit=layer)+cachegen(tables=shared)",
                                         "h2o+cachegen(tables=shared)", "full+kivi(group=8)"},
                                        {"60"}));
  for (std::size_t lane = 0; lane < outcome.cells[0].lanes.size(); lane += 2) {
    const auto sent = [&](std::size_t cell, std::size_t of) {
      return *outcome.cells[cell].lanes[lane + of].stored->sent_bits;
    };
    CHECK(sent(0, 0) == sent(0, 1));
    CHECK(sent(1, 0) != sent(1, 1));  // a set of tokens per lane: each is a unit
    CHECK_FALSE(outcome.cells[2].lanes[lane].stored->sent_bits.has_value());
  }
}

TEST_CASE("a budget in bytes buys as many tokens as fit with their scales and windows") {
  // A lane's token of 2 x 8 numbers in 4 bits with a scale per 8: 2 * (8 * 4 + 32) bits = 16 bytes, where
  // 32-bit floats take 64. Four lanes and 40 tokens: 2,560 bytes.
  const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .decode = 2});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"h2o+scalar(bits=4,group=8)", "h2o"}, {"2560B", "2559B"}));
  CHECK(outcome.cells[0].budget_tokens == 40);
  CHECK(outcome.cells[1].budget_tokens == 10);
  CHECK(outcome.cells[2].budget_tokens == 39);
  // A window of exact keys makes 7 tokens take more than 8: the budget must hold both.
  const sim::Outcome windowed =
      test::run(trace, test::request_of({"h2o+kivi(bits=2,group=8,residual=8)"}, {"1792B", "1791B"}));
  CHECK(windowed.cells[0].budget_tokens > windowed.cells[1].budget_tokens);
  // Codes that differ by layer: 2 x 8 numbers of 5 bits in the first of two, of 4 in the second, and two
  // 16-bit scales, are 112 and 96 bits a lane. With two lanes per layer a token takes 52 bytes.
  const sim::Outcome by_layer = test::run(trace, test::request_of({"h2o+cachegen"}, {"2080B", "2079B"}));
  CHECK(by_layer.cells[0].budget_tokens == 40);
  CHECK(by_layer.cells[1].budget_tokens == 39);
}

TEST_CASE("replay attends a row for what is dropped, as a slow one does") {
  const test::TraceShape shape{.prompt = 30, .decode = 25};
  const trace::MemoryTrace trace = test::random_trace(shape);
  const trace::Sequence sequence(trace);
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"streaming_llm(sinks=2)+compensation"}, {"10"}));
  const trace::Model& model = sequence.model();
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head) {
      const test::Rows k = test::read_all(sequence, trace::Tensor::key, layer, head),
                       v = test::read_all(sequence, trace::Tensor::value, layer, head);
      double variation = 0, error = 0;
      for (std::size_t t = sequence.first_measured(); t < 55; ++t) {
        const auto held = [&](std::size_t j) { return j < 2 || j + 8 > t; };
        for (std::uint32_t g = 0; g < 2; ++g) {
          const test::Rows q = test::read_all(sequence, trace::Tensor::query, layer, 2 * head + g),
                           a = test::attention(sequence, layer, 2 * head + g);
          const auto weight = [&](const Vector& key) {
            return std::exp(model.attn_scale * std::inner_product(key.begin(), key.end(), q[t].begin(), 0.0));
          };
          Vector mean_key(8), mean_value(8), output(8), whole(8);
          double dropped = 0, sum = 0, differences = 0;
          for (std::size_t j = 0; j <= t; ++j)
            if (!held(j)) {
              dropped += 1;
              for (std::size_t c = 0; c < 8; ++c) {
                mean_key[c] += k[j][c];
                mean_value[c] += v[j][c];
              }
            }
          for (std::size_t c = 0; c < 8; ++c) {
            mean_key[c] /= dropped;
            mean_value[c] /= dropped;
          }
          for (std::size_t j = 0; j <= t; ++j)
            if (held(j)) sum += weight(k[j]);
          const double rest = dropped * weight(mean_key) / (sum + dropped * weight(mean_key));
          sum += dropped * weight(mean_key);
          for (std::size_t j = 0; j <= t; ++j) {
            const double w = held(j) ? weight(k[j]) / sum : 0;
            differences += std::abs(a[t][j] - w);
            for (std::size_t c = 0; c < 8; ++c) {
              output[c] += w * v[j][c];
              whole[c] += a[t][j] * v[j][c];
            }
          }
          for (std::size_t c = 0; c < 8; ++c) output[c] += rest * mean_value[c];
          variation += (differences + rest) / 2 / 2;
          error += test::distance(output, whole) / test::norm(whole) / 2;
        }
      }
      const sim::LaneOutcome& got = outcome.cells[0].lanes[2 * layer + head];
      CAPTURE(layer, head);
      CHECK(got.stored->total_variation == Approx(variation).margin(1e-4));
      CHECK(got.output_error == Approx(error).margin(1e-4));
    }
}

TEST_CASE("with equal dropped keys, a row for what is dropped costs nothing") {
  // All but the first two keys and the newest eight are equal.
  trace::MemoryTrace trace = test::random_trace({.prompt = 40, .decode = 0});
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head) {
      const std::span<float> keys = trace.rows(trace::Tensor::key, layer, head);
      for (std::size_t i = 3 * 8; i < 32 * 8; ++i) keys[i] = keys[i - 8];
    }
  const sim::Outcome outcome = test::run(
      trace, test::request_of({"streaming_llm(sinks=2)+compensation", "streaming_llm(sinks=2)"}, {"10"}));
  for (std::size_t i = 0; i < 4; ++i) {
    const sim::LaneOutcome &with = outcome.cells[0].lanes[i], &without = outcome.cells[1].lanes[i];
    CHECK(with.output_error / static_cast<double>(with.steps) < 1e-5);
    CHECK(without.output_error / static_cast<double>(without.steps) > 1e-2);
  }
}

TEST_CASE("razor_attention drops in some heads, and replaces what it drops there alone") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 60, .decode = 5});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"razor_attention(recent=10,retrieval=0.5)"}, {"30"}));
  REQUIRE(outcome.cells[0].skipped.empty());
  std::size_t retrieval = 0;
  for (const sim::LaneOutcome& lane : outcome.cells[0].lanes) {
    const bool all = lane.held_at_end == 65;
    retrieval += all ? 1 : 0;
    if (!all) CHECK(lane.kept_tokens == 4 + 12);  // a fifth of the prompt is more than 10
    const std::uint64_t tokens = lane.held_at_end * 16 * 32;
    CHECK(lane.stored->held_bits == static_cast<double>(tokens + (all ? 0 : 16 * 32 + 32)));
    CHECK((lane.output_error < 1e-4) == all);
  }
  CHECK(retrieval == 2);
}

TEST_CASE("what cannot be stored otherwise is refused with the reason") {
  const trace::MemoryTrace trace = test::random_trace({});
  const sim::Outcome outcome =
      test::run(trace, test::request_of({"h2o(feedback=raw)+scalar(group=8)", "full+kivi"}, {"12"}));
  CHECK(outcome.cells[0].skipped.find("feedback=raw") != std::string::npos);
  CHECK(outcome.cells[1].skipped.find("do not divide a vector of 8") != std::string::npos);
  CHECK_THROWS_WITH(policy::parse_composition("optimal+kivi", policy::builtin()),
                    Catch::Contains("bound for numbers that are stored as they come"));
}

namespace {

/// sqrt of the squared error of a lane's keys and values that two layers share, over that of the recorded.
struct SharedError {
  double key = 0, value = 0;
};

/// Without a token that stays apart.
SharedError shared_error(trace::MemoryTrace& trace, std::uint32_t layer, std::uint32_t other,
                         std::uint32_t head, double t) {
  const auto error = [&](trace::Tensor tensor) {
    const std::span<float> own = trace.rows(tensor, layer, head), there = trace.rows(tensor, other, head);
    double sum = 0, squares = 0;
    for (std::size_t first = 0; first < own.size(); first += 8) {
      const Vector a(own.begin() + static_cast<std::ptrdiff_t>(first),
                     own.begin() + static_cast<std::ptrdiff_t>(first + 8)),
          b(there.begin() + static_cast<std::ptrdiff_t>(first),
            there.begin() + static_cast<std::ptrdiff_t>(first + 8));
      const double angle = std::acos(test::cosine(a, b)), toward = layer > other ? t : 1 - t;
      Vector stored;
      for (std::size_t c = 0; c < 8; ++c)
        stored.push_back(policy::test::as_half(test::norm(a)) *
                         (std::sin(toward * angle) * a[c] / test::norm(a) +
                          std::sin((1 - toward) * angle) * b[c] / test::norm(b)) /
                         std::sin(angle));
      sum += std::pow(test::distance(stored, a), 2);
      squares += std::pow(test::norm(a), 2);
    }
    return std::sqrt(sum / squares);
  };
  return {error(trace::Tensor::key), error(trace::Tensor::value)};
}

}  // namespace

TEST_CASE("replay stores pairs of layers together, and refuses evictions that part them") {
  trace::MemoryTrace trace = test::random_trace({.layers = 5, .prompt = 40, .decode = 20});
  const sim::Outcome outcome = test::run(
      trace, test::request_of({"full+minicache(gamma=0)", "full+minicache(from=1)", "full", "h2o+minicache"},
                              {"12"}, 3));
  CHECK(outcome.cells[3].skipped.find("full+minicache") != std::string::npos);
  const std::vector<int> partner{-1, -1, 3, 2, -1};
  for (std::uint32_t layer = 0; layer < 5; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head) {
      CAPTURE(layer, head);
      const sim::LaneOutcome &paired = outcome.cells[0].lanes[2 * layer + head],
                             &alone = outcome.cells[1].lanes[2 * layer + head];
      const auto relative = [](double error, double squares) { return std::sqrt(error / squares); };
      CHECK(alone.stored->key_error == 0);
      CHECK(alone.stored->held_bits == 60 * 2 * 8 * 32);
      if (partner[layer] < 0) {
        CHECK(paired.stored->key_error == 0);
        CHECK(paired.output_error == alone.output_error);
        continue;
      }
      const SharedError expected =
          shared_error(trace, layer, static_cast<std::uint32_t>(partner[layer]), head, 0.6);
      CHECK(relative(paired.stored->key_error, paired.stored->key_squares) == Approx(expected.key));
      CHECK(relative(paired.stored->value_error, paired.stored->value_squares) == Approx(expected.value));
      CHECK(paired.stored->held_bits == 60 * (2 * 8 * 32 / 2 + 2 * 16));
      CHECK(paired.output_error > alone.output_error);
    }
}

}  // namespace kvsim::test_stored_replay
