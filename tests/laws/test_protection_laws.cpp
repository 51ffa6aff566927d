// What an eviction protects, tested for every eviction behind every allocation.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"

namespace kvsim::test_protection_laws {

namespace {

constexpr std::size_t kPrompt = 120;

trace::MemoryTrace small_trace(bool equal_values = false) {
  trace::MemoryTrace trace = test::random_trace(
      {.layers = 3, .kv_heads = 2, .group = 2, .prompt = kPrompt, .decode = 2, .output_weights = true});
  for (std::uint32_t layer = 0; equal_values && layer < 3; ++layer)
    for (std::uint32_t head = 0; head < 2; ++head)
      for (float& x : trace.rows(trace::Tensor::value, layer, head)) x = 1;
  return trace;
}

sim::Outcome decided(const trace::MemoryTrace& trace, const std::vector<std::string>& policies,
                     const std::vector<std::string>& budgets) {
  sim::Request request = test::request_of(policies, budgets, 2);
  request.decisions = true;
  return test::run(trace, request);
}

/// Returns which prompt positions a lane holds when the prompt ends, as flags.
std::vector<char> held(const std::vector<sim::ResidentInterval>& lane) {
  std::vector<char> out(kPrompt);
  for (const sim::ResidentInterval& stay : lane)
    if (stay.first == 0 && stay.position < static_cast<policy::Position>(kPrompt))
      out[static_cast<std::size_t>(stay.position)] = 1;
  return out;
}

/// Evictions that rank or cut a prompt at once, wrapped and plain.
std::vector<std::string> evictions() {
  std::vector<std::string> out;
  for (const std::string& text : test::every_eviction()) {
    const policy::Composition composition = policy::parse_composition(text, policy::builtin());
    const policy::Part& part = composition.eviction;
    if (part.spec->is_oracle() || part.spec->own_budget() || composition.allocation.spec->name != "uniform")
      continue;
    if (!part.make_eviction({.head_dim = 1, .value_dim = 1})->streams_prompt()) out.push_back(text);
  }
  for (const char* text :
       {"snapkv(window=5,sinks=3)", "h2o(recent=0.3,sinks=2,window=3)", "critical_kv(base=h2o)",
        "critical_kv(base=h2o(recent=0.8,sinks=3),first_stage=0)", "vatp(base=snapkv(sinks=30))",
        "vatp(base=critical_kv(base=snapkv))", "critical_kv(base=vatp)",
        "kvcrush(base=critical_kv(base=vatp))", "kvcrush(base=h2o(sinks=3),granularity=4)",
        "kvcrush(base=pivotal_context,share=0.6)"})
    out.push_back(text);
  return out;
}

/// Evictions that can be a base, and whose prompt's set is decided by scores.
std::vector<std::string> bases() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (!spec.scored() || !policy::complete(spec)) continue;
    const policy::Part part = policy::parse_composition(spec.name, policy::builtin()).eviction;
    if (!part.make_eviction({.head_dim = 1, .value_dim = 1})->streams_prompt()) out.push_back(spec.name);
  }
  for (const char* text : {"snapkv(window=5,sinks=3)", "h2o(recent=0.3,sinks=2,window=3)"})
    out.push_back(text);
  return out;
}

/// Checks that the first and the second half of `policies` hold the same positions, lane by lane.
void check_pairs(const trace::MemoryTrace& trace, const std::vector<std::string>& wrapped,
                 const std::vector<std::string>& plain, std::size_t least) {
  std::vector<std::string> policies = wrapped;
  policies.insert(policies.end(), plain.begin(), plain.end());
  const std::vector<std::string> budgets = {"40", "75"};
  const sim::Outcome outcome = decided(trace, policies, budgets);
  std::size_t compared = 0;
  for (std::size_t budget = 0; budget < budgets.size(); ++budget)
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const sim::CellOutcome &a = outcome.cells[budget * policies.size() + i],
                             &b = outcome.cells[budget * policies.size() + plain.size() + i];
      CAPTURE(wrapped[i], budgets[budget], a.skipped, b.skipped);
      CHECK(a.skipped.empty() == b.skipped.empty());
      REQUIRE(a.lanes.size() == b.lanes.size());
      for (std::size_t lane = 0; lane < a.lanes.size(); ++lane, ++compared) {
        CHECK(a.lanes[lane].budget_tokens == b.lanes[lane].budget_tokens);
        CHECK(held(a.resident_intervals[lane]) == held(b.resident_intervals[lane]));
      }
    }
  CHECK(compared >= least);
}

/// Returns the eviction with every allocation behind it; kvcrush has no scores, so it gets only allocations
/// that do not read them.
std::vector<std::string> behind(const std::string& eviction, bool scored = true) {
  std::vector<std::string> out;
  for (const std::string& text : test::every_allocation(eviction))
    if (scored ||
        !policy::builtin()
             .find_policy(policy::Kind::allocation,
                          policy::parse_composition("h2o" + text.substr(eviction.size()), policy::builtin())
                              .allocation.spec->name)
             ->uses_scores())
      out.push_back(text);
  return out;
}

}  // namespace

TEST_CASE("protected positions are kept, behind every allocation") {
  const trace::MemoryTrace trace = small_trace();
  std::size_t checked = 0;
  for (const std::string& eviction : evictions()) {
    const policy::Part part = policy::parse_composition(eviction, policy::builtin()).eviction;
    const auto protection = [guard = part.protection()](std::size_t budget) {
      return guard(budget, kPrompt);
    };
    const std::vector<std::string> policies = behind(eviction, part.spec->scored());
    const sim::Outcome outcome = decided(trace, policies, {"45", "80"});
    for (std::size_t cell = 0; cell < outcome.cells.size(); ++cell) {
      for (std::size_t lane = 0; lane < outcome.cells[cell].lanes.size(); ++lane) {
        const std::vector<char> kept = held(outcome.cells[cell].resident_intervals[lane]);
        const policy::Protection guard = protection(outcome.cells[cell].lanes[lane].budget_tokens);
        bool all = true;
        for (std::size_t j = 0; j < kPrompt; ++j)
          if (j < guard.sinks || j + guard.window >= kPrompt) all = all && kept[j] != 0;
        CAPTURE(policies[cell % policies.size()], lane, guard.sinks, guard.window);
        CHECK(all);
        ++checked;
      }
    }
  }
  CHECK(checked > 10000);
}

TEST_CASE("the floor is what the eviction protects, and room for one") {
  std::size_t checked = 0;
  for (const std::string& eviction : evictions()) {
    const policy::Part part = policy::parse_composition(eviction, policy::builtin()).eviction;
    const auto protection = [guard = part.protection()](std::size_t budget) {
      return guard(budget, kPrompt);
    };
    const std::size_t floor = part.floor();
    policy::Protection before = protection(floor);
    CAPTURE(eviction, floor, before.sinks, before.window);
    const std::size_t needed = before.sinks + std::max<std::size_t>(before.window, 1);
    CHECK(needed <= floor);
    const bool blocks = part.spec->name == "openvino" ||
                        (part.params.has("granularity") && part.params.count("granularity") > 1);
    if (!blocks) CHECK(needed == floor);
    for (std::size_t budget = floor + 1; budget <= kPrompt; ++budget) {
      const policy::Protection now = protection(budget);
      CHECK(now.sinks >= before.sinks);
      CHECK(now.window >= before.window);
      CHECK(now.sinks + now.window <= before.sinks + before.window + 1);
      before = now;
      ++checked;
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("critical_kv with the whole budget in its first stage is its base, behind every allocation") {
  std::vector<std::string> wrapped, plain;
  for (const std::string& base : bases()) {
    const std::string with = "critical_kv(base=" + base + ",first_stage=1)";
    for (const std::string& text : behind(base)) plain.push_back(text);
    for (const std::string& text : behind(with)) wrapped.push_back(text);
  }
  check_pairs(small_trace(), wrapped, plain, 3000);
}

TEST_CASE(
    "vatp over values of equal size and without sinks of its own is its base, behind every allocation") {
  std::vector<std::string> wrapped, plain;
  for (const std::string& base : bases()) {
    if (policy::parse_composition(base, policy::builtin()).layer_unit()) continue;
    const std::string with = "vatp(base=" + base + ",sinks=0)";
    for (const std::string& text : behind(base)) plain.push_back(text);
    for (const std::string& text : behind(with)) wrapped.push_back(text);
  }
  check_pairs(small_trace(true), wrapped, plain, 3000);
}

TEST_CASE("kvcrush without representatives is its base in one set per layer, behind every allocation") {
  std::vector<std::string> wrapped, plain;
  for (const char* base : {"h2o", "snapkv", "tova", "a2sf", "h2o(recent=0.3,sinks=2,window=3)"}) {
    const std::string text = base;
    const std::string layer =
        text.ends_with(")") ? text.substr(0, text.size() - 1) + ",unit=layer)" : text + "(unit=layer)";
    for (const std::string& one : behind(layer, false)) plain.push_back(one);
    for (const std::string& one : behind("kvcrush(base=" + text + ",share=0)", false)) wrapped.push_back(one);
  }
  check_pairs(small_trace(), wrapped, plain, 500);
}

}  // namespace kvsim::test_protection_laws
