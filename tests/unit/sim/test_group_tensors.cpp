// Tests what policies are shown of a prompt, and the refusals when the trace lacks it.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/attention/group_tensors.hpp"
#include "sim/attention/query_reader.hpp"
#include "sim/replay/plan.hpp"
#include "tests/unit/traces/small_trace.hpp"

namespace kvsim::test_group_tensors {

using kvsim::sim::GroupTensors;

namespace {

trace::Header header_of(std::uint32_t flags_known, bool output_weights) {
  trace::Model model = test::small_model(2, 2, 2, 8, 4);
  model.rotary_dim = 8;
  model.hidden_size = 6;
  model.attn_scale = 0.25;
  trace::Header header = trace::plain_header(model, 5, 2);
  header.flags_known = flags_known;
  header.token_flags = {trace::kFlagSpecial,    0, trace::kFlagPunctuation, trace::kFlagWhiteSpace, 0, 0,
                        trace::kFlagPunctuation};
  for (std::uint32_t& flags : header.token_flags) flags &= flags_known;
  if (output_weights) header.output_elem = Elem::f32;
  return header;
}

constexpr std::uint32_t kClassesKnown =
    trace::kFlagSpecial | trace::kFlagPunctuation | trace::kFlagWhiteSpace;

policy::PolicySpec needy_spec(const policy::Needs& needs) {
  struct Everything final : policy::Eviction {
    void finish_prompt(const policy::Prompt&) override {}
    policy::Start start(std::size_t) const override { return {}; }
  };
  return {.name = "needy", .needs = needs, .rule = policy::EvictionRule{.make = policy::made<Everything>}};
}

std::string reason(const trace::MemoryTrace& trace, const policy::Needs& needs) {
  const policy::PolicySpec spec = needy_spec(needs);
  sim::Request request;
  request.cells.resize(1);
  request.cells[0].composition.eviction.spec = &spec;
  request.cells[0].composition.allocation = policy::parse_composition("window", policy::builtin()).allocation;
  request.cells[0].budget = sim::parse_budget("4");
  return sim::outline(trace::Sequence(trace), request).cells[0].skipped;
}

}  // namespace

TEST_CASE("a unit sees its own output weights, rotation and token classes") {
  const trace::MemoryTrace trace = test::numbered_trace(header_of(kClassesKnown, true));
  const trace::Sequence sequence(trace);
  const GroupTensors tensors(sequence, {.layer = 1, .first_head = 0, .n_lanes = 2},
                             {.queries = true, .classes = true, .output_weights = true});
  const GroupTensors::PromptView second(tensors, 1);
  for (int head = 0; head < 2; ++head) {
    std::vector<float> expected(4 * 6);
    trace.read_output_weights(1, static_cast<std::uint32_t>(2 + head), expected);
    const MatrixView weights = second.output_weights(head);
    REQUIRE((weights.rows == 4 && weights.cols == 6));
    for (std::size_t c = 0; c < 4; ++c)
      for (std::size_t i = 0; i < 6; ++i) CHECK(weights(c, i) == expected[c * 6 + i]);
  }
  CHECK(second.rotary().inv_freq.size() == 4);
  CHECK(second.scale() == 0.25);
  const auto classes = second.classes();
  CHECK(std::vector<int>(classes.begin(), classes.end()) ==
        std::vector<int>{policy::kSpecialToken, 0, policy::kPunctuation, 0, 0});
  CHECK(tensors.token_class(6) == policy::kPunctuation);
}

TEST_CASE("tensors that no policy needs are not read") {
  const trace::MemoryTrace trace = test::numbered_trace(header_of(kClassesKnown, true));
  const trace::Sequence sequence(trace);
  const GroupTensors tensors(sequence, {.layer = 0, .first_head = 1, .n_lanes = 1}, {});
  const GroupTensors::PromptView view(tensors, 0);
  CHECK_THROWS_WITH(view.output_weights(0), Catch::Contains("output weights"));
  CHECK_THROWS_WITH(view.classes(), Catch::Contains("token classes"));
  CHECK(tensors.token_class(2) == 0);
}

TEST_CASE("a cell whose policy needs what the trace lacks is skipped with what to do") {
  const trace::MemoryTrace rich = test::numbered_trace(header_of(kClassesKnown, true));
  const trace::MemoryTrace poor = test::numbered_trace(header_of(trace::kFlagSpecial, false));
  CHECK(reason(rich, {.classes = true, .output_weights = true}).empty());
  CHECK_THAT(reason(poor, {.classes = true}), Catch::Contains("needy") && Catch::Contains("punctuation"));
  CHECK_THAT(reason(poor, {.output_weights = true}),
             Catch::Contains("needy") && Catch::Contains("--output-weights"));
  CHECK(reason(poor, {}).empty());
}

TEST_CASE("an allocation that reads scores needs a prompt that is ranked") {
  const trace::MemoryTrace trace = test::numbered_trace(header_of(0, false));
  policy::PolicySpec reader = *policy::builtin().find_policy(policy::Kind::allocation, "uniform");
  std::get<policy::AllocationRule>(reader.rule).uses_scores = true;
  const auto skipped = [&](const std::string& eviction) {
    sim::Request request;
    request.cells.push_back({policy::parse_composition(eviction, policy::builtin()), sim::parse_budget("4")});
    request.cells[0].composition.allocation.spec = &reader;
    return sim::outline(trace::Sequence(trace), request).cells[0].skipped;
  };
  CHECK(skipped("h2o").empty());
  CHECK_THAT(skipped("h2o(prompt=stream)"), Catch::Contains("h2o") && Catch::Contains("token by token"));
}

TEST_CASE("queries are read in pieces, and handed out in blocks of any size") {
  // Chunks of 64 components hold 1,024 rows of bf16.
  trace::Header header = trace::plain_header(test::small_model(1, 1, 2, 64, 8), 1500, 600);
  header.elem = Elem::bf16;
  const trace::MemoryTrace trace = test::numbered_trace(header);
  const trace::Sequence sequence(trace);
  const GroupTensors tensors(sequence, {0, 0, 1}, {});
  std::vector<float> expected(2100 * 64);
  tensors.read_queries(1, 0, 2100, expected);
  for (const std::size_t block : {1, 64, 100, 2000, 2100}) {
    sim::QueryReader reader(tensors);
    std::vector<float> rows(block * 64);
    for (std::size_t first = 0; first < 2100; first += block) {
      const std::size_t n = std::min<std::size_t>(block, 2100 - first);
      reader.read(0, first, n, std::span(rows).first(n * 64));  // the heads do not disturb each other
      reader.read(1, first, n, std::span(rows).first(n * 64));
      REQUIRE(std::equal(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(n * 64),
                         expected.begin() + static_cast<std::ptrdiff_t>(first * 64)));
    }
  }
  sim::QueryReader reader(tensors);  // back and forth
  std::vector<float> row(64);
  for (const std::size_t at : {2099, 0, 1023, 1024, 5}) {
    reader.read(1, at, 1, row);
    CHECK(std::equal(row.begin(), row.end(), expected.begin() + static_cast<std::ptrdiff_t>(at * 64)));
  }
  CHECK(sim::QueryReader::bytes(sequence, 2) == 2 * 1024 * 64 * sizeof(float));
}

}  // namespace kvsim::test_group_tensors
