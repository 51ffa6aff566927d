// Oracles as the feeder runs them, and the bound they give: no registered eviction retains more.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "policies/builtin.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_oracles {

using Positions = std::vector<Position>;

namespace {

constexpr double kDimScale = 0.5;  // factor on q.k that the feeder uses

double mean_of_row(const Run& run, std::size_t query, Position j) {
  double sum = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head)
    sum += static_cast<double>(run.p(head, query, static_cast<std::size_t>(j)));
  return sum / run.unit.n_query_heads();
}

double mean_attention(const Run& run, std::size_t step, Position j) {
  return mean_of_row(run, run.prompt + step, j);
}

double retained(const Run& run, const Fed& fed) {
  double sum = 0;
  for (std::size_t s = 0; s < run.decode; ++s)
    for (const Position j : fed.held[s]) sum += mean_attention(run, s, j);
  return sum;
}

std::size_t most_held(const Fed& fed) {
  std::size_t most = 1;
  for (const Positions& held : fed.held) most = std::max(most, held.size());
  return most;
}

/// Returns the mass of the largest entries of every row, as many as are held at that step.
double best_of_every_step(const Run& run, const Fed& fed) {
  double sum = 0;
  for (std::size_t s = 0; s < run.decode; ++s) {
    std::vector<double> row;
    for (std::size_t j = 0; j <= run.prompt + s; ++j)
      row.push_back(mean_attention(run, s, static_cast<Position>(j)));
    std::sort(row.begin(), row.end(), std::greater<>());
    for (std::size_t i = 0; i < fed.held[s].size(); ++i) sum += row[i];
  }
  return sum;
}

/// Requires that no token is readmitted and every token is resident at its own step.
bool is_permanent(const Run& run, const Fed& fed) {
  Positions before = fed.kept;
  for (std::size_t s = 0; s < run.decode; ++s) {
    const auto own = static_cast<Position>(run.prompt + s);
    if (fed.held[s].empty() || fed.held[s].back() != own) return false;
    before.push_back(own);
    if (!std::includes(before.begin(), before.end(), fed.held[s].begin(), fed.held[s].end())) return false;
    before = fed.held[s];
  }
  return true;
}

/// Keeps the highest labels, the newest of equals; with `evicts`, in decoding too.
template <class Label>
Fed feed_by_label(const Run& run, std::size_t budget, bool evicts, const Label& label) {
  const auto lower = [&](Position a, Position b) {
    return label(a) != label(b) ? label(a) < label(b) : a < b;
  };
  Positions held(run.prompt);
  for (std::size_t j = 0; j < run.prompt; ++j) held[j] = static_cast<Position>(j);
  const auto drop = [&] { held.erase(std::min_element(held.begin(), held.end(), lower)); };
  while (held.size() > budget) drop();
  Fed out{held, {}};
  for (std::size_t s = 0; s < run.decode; ++s) {
    if (evicts && held.size() == budget) drop();
    held.push_back(static_cast<Position>(run.prompt + s));
    out.held.push_back(held);
  }
  return out;
}

/// Positions of the queries that a label counts, [first, last): those measured after j joins, at most
/// `horizon` of them. The last prompt row measured again does not count for its own token.
std::pair<std::size_t, std::size_t> queries_ahead(const Run& run, Position j, std::size_t horizon,
                                                  bool again) {
  const auto at = static_cast<std::size_t>(j);
  const std::size_t measured = again ? run.prompt - 1 : run.prompt;
  const std::size_t first = at < run.prompt ? measured : at + 1;
  return {first, horizon == 0 ? run.length() : std::min(run.length(), first + horizon)};
}

double slow_mean(const Run& run, Position j, std::size_t horizon, bool again = false) {
  const auto [first, last] = queries_ahead(run, j, horizon, again);
  double sum = 0;
  for (std::size_t query = last; query-- > first;)
    if (query != static_cast<std::size_t>(j)) sum += mean_of_row(run, query, j);
  return first == last ? 0 : sum / static_cast<double>(last - first);
}

double slow_max_logit(const Run& run, Position j, std::size_t horizon, bool again = false) {
  const auto [first, last] = queries_ahead(run, j, horizon, again);
  double most = -std::numeric_limits<double>::infinity();
  const auto dim = static_cast<std::size_t>(run.unit.head_dim);
  for (int head = 0; head < run.unit.n_query_heads(); ++head)
    for (std::size_t query = first; query < last; ++query) {
      if (query == static_cast<std::size_t>(j)) continue;
      const float* q = run.queries[static_cast<std::size_t>(head)].data() + query * dim;
      const float* k = run.keys[static_cast<std::size_t>(head / run.unit.group)].data() +
                       static_cast<std::size_t>(j) * dim;
      double dot = 0;
      for (std::size_t d = 0; d < dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      most = std::max(most, kDimScale * dot);
    }
  return most;
}

std::string text_of(const char* name, std::size_t horizon, bool evicts, const Run& run) {
  return std::string(name) + "(horizon=" + std::to_string(horizon) +
         ",generated=" + (evicts ? "evict" : "append") +
         ",unit=" + (run.unit.n_lanes > 1 ? "layer" : "lane") + ")";
}

}  // namespace

TEST_CASE("optimal attends tokens that pay now, future_mass waits for tokens that pay more later") {
  // Means over the two heads, in tenths; two slots, of which the step's own token takes one.
  //            0  1  2  3  4
  // step 0     6  0  1
  // step 1     0  0  5  1
  // step 2     0  7  0  0  1
  // Greedy holds token 1 for its 7 and attends nothing else: 7 and 3 for the own tokens. The optimum evicts
  // it and attends 0, then 2: 6 + 5 and 3.
  Run run = blank_run({.prompt = 2, .decode = 3, .n_lanes = 1, .group = 2});
  const auto set = [&](std::size_t query, std::size_t key, float mean) {
    run.p(0, query, key) = 0.5F * mean / 10, run.p(1, query, key) = 1.5F * mean / 10;
  };
  set(2, 0, 6), set(2, 2, 1);
  set(3, 2, 5), set(3, 3, 1);
  set(4, 1, 7), set(4, 4, 1);
  const Fed best = feed("optimal", run, 2), greedy = feed("future_mass", run, 2);
  CHECK(best.held == std::vector<Positions>{{0, 2}, {2, 3}, {3, 4}});
  CHECK(greedy.held == std::vector<Positions>{{1, 2}, {1, 3}, {1, 4}});
  CHECK(retained(run, best) == Approx(1.4));
  CHECK(retained(run, greedy) == Approx(1.0));
  // A horizon of one step is enough here.
  CHECK(feed("future_mass(horizon=1)", run, 2).held == best.held);
}

TEST_CASE("future_mean ranks by the mean over later steps, worked by hand") {
  Run run = blank_run({.prompt = 3, .decode = 3, .n_lanes = 1, .group = 1});
  const auto set = [&](std::size_t query, const std::vector<float>& row) {
    for (std::size_t j = 0; j < row.size(); ++j) run.p(0, query, j) = row[j];
  };
  set(3, {0.3F, 0.1F, 0.2F, 0.4F});
  set(4, {0.1F, 0.1F, 0.3F, 0.3F, 0.2F});
  set(5, {0.0F, 0.5F, 0.1F, 0.1F, 0.0F, 0.3F});
  // Prompt: 0.4 / 3, 0.7 / 3, 0.6 / 3. Token 3 is seen by two later steps: 0.4 / 2; token 4 by one: 0.
  CHECK(feed("future_mean", run, 2).held == std::vector<Positions>{{1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}});
  // 3 arrives: 2 (0.2) is evicted before 1 (0.233). 4 arrives: 3 (0.2) is evicted. 5 arrives: 4 (0) is
  // evicted.
  CHECK(feed("future_mean(generated=evict)", run, 2).held == std::vector<Positions>{{1, 3}, {1, 4}, {1, 5}});
  // Only the next step counts: 0.3, 0.1, 0.2.
  CHECK(feed("future_mean(horizon=1)", run, 2).kept == Positions{0, 2});
}

TEST_CASE("future_max_logit takes the largest logit of any later query and head, worked by hand") {
  Run run = blank_run({.prompt = 3, .decode = 2, .n_lanes = 1, .group = 2});
  for (auto& head : run.rows) std::fill(head.begin(), head.end(), 0.1F);
  run.keys[0] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0};
  run.queries[0] = {9, 9, 9, 9, 9, 9, 9, 9, 9, /*step 0*/ 1, 3, 0, /*step 1*/ 4, 0, -1};
  run.queries[1] = {9, 9, 9, 9, 9, 9, 9, 9, 9, /*step 0*/ 0, 0, 2, /*step 1*/ 0, 0, 0};
  // Before the scale of 0.5: key 0 has 1 and 4 from head 0, key 1 has 3, key 2 has 2 from head 1, key 3 has 3
  // from step 1, the only later one. Prompt queries do not count.
  CHECK(feed("future_max_logit", run, 2).kept == Positions{0, 1});
  CHECK(feed("future_max_logit", run, 1).kept == Positions{0});
  CHECK(feed("future_max_logit(horizon=1)", run, 2).kept == Positions{1, 2});
  CHECK(feed("future_max_logit(generated=evict)", run, 2).held == std::vector<Positions>{{0, 3}, {0, 4}});
  // A query that does not see key 0 does not count for it, and key 0 is left with 1.
  run.p(0, 4, 0) = run.p(1, 4, 0) = 0;
  CHECK(feed("future_max_logit", run, 2).kept == Positions{1, 2});
}

TEST_CASE("label oracles agree with their definition, per lane and per layer") {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 1 + seed % 11, .decode = seed % 8, .n_lanes = lanes, .group = 2},
                               seed, seed % 3 == 0 ? 2 : 1000000);
    for (const std::size_t horizon : {0U, 1U, 3U})
      for (const bool evicts : {false, true})
        for (std::size_t budget = 1; budget < 14; ++budget) {
          const bool again = seed % 4 == 1;
          const Feeding feeding{.last_row_again = again};
          CAPTURE(seed, horizon, evicts, budget, again);
          const Fed logit = feed(text_of("future_max_logit", horizon, evicts, run), run, budget, feeding);
          const Fed slow_logit = feed_by_label(
              run, budget, evicts, [&](Position j) { return slow_max_logit(run, j, horizon, again); });
          CHECK(logit.kept == slow_logit.kept);
          CHECK(logit.held == slow_logit.held);
          if (seed % 3 == 0) continue;  // few levels: equal means differ in their last bits
          const Fed mean = feed(text_of("future_mean", horizon, evicts, run), run, budget, feeding);
          const Fed slow = feed_by_label(run, budget, evicts,
                                         [&](Position j) { return slow_mean(run, j, horizon, again); });
          CHECK(mean.kept == slow.kept);
          CHECK(mean.held == slow.held);
        }
  }
}

TEST_CASE("no eviction retains more than optimal, and none that only cuts the prompt more than future_mean") {
  std::size_t n_bounded = 0, n_one_shot = 0;
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const bool layer = composition.layer_unit();
      const Run run = random_run({.prompt = 9 + 7 * seed, .decode = 14, .n_lanes = layer ? 2 : 1, .group = 2},
                                 seed, seed % 2 == 0 ? 3 : 1000000);
      const std::string unit = layer ? "(unit=layer)" : "(unit=lane)";
      for (const std::size_t budget : {composition.floor(), composition.floor() + 5, run.prompt / 2}) {
        if (budget < composition.floor()) continue;
        CAPTURE(policy, seed, budget);
        const Fed fed = feed(composition, run, budget);
        REQUIRE(is_permanent(run, fed));
        // The optimum may hold as much as the policy held at most, for policies that append or attend first.
        const std::size_t slots = most_held(fed);
        const Fed best = feed("optimal" + unit, run, slots);
        CHECK(is_permanent(run, best));
        CHECK(most_held(best) <= slots);
        CHECK(retained(run, fed) <= retained(run, best) + 1e-6);
        CHECK(retained(run, feed("future_mass" + unit, run, slots)) <= retained(run, best) + 1e-6);
        CHECK(retained(run, best) <= best_of_every_step(run, best) + 1e-6);
        ++n_bounded;
        if (fed.held.back().size() != fed.kept.size() + run.decode) continue;
        const Fed one_shot = feed("future_mean" + unit, run, std::max<std::size_t>(fed.kept.size(), 1));
        CHECK(retained(run, fed) <= retained(run, one_shot) + 1e-6);
        ++n_one_shot;
      }
    }
  }
  CHECK(n_bounded > 200);
  CHECK(n_one_shot > 20);
}

TEST_CASE("with the last prompt row measured again no eviction retains more than optimal either") {
  // Every policy retains, of that row, its resident prompt positions and the row's own key.
  const auto with_last_row = [](const Run& run, const Fed& fed) {
    const auto own = static_cast<Position>(run.prompt - 1);
    double sum = retained(run, fed) + mean_of_row(run, run.prompt - 1, own);
    for (const Position j : fed.kept)
      if (j != own) sum += mean_of_row(run, run.prompt - 1, j);
    return sum;
  };
  const Feeding again{.last_row_again = true};
  std::size_t n_bounded = 0, n_better = 0;
  for (const std::string& policy : kvsim::test::every_eviction()) {
    const Composition composition = parse_composition(policy, builtin());
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const bool layer = composition.layer_unit();
      const Run run = random_run({.prompt = 9 + 7 * seed, .decode = 1 + 2 * seed, .n_lanes = layer ? 2 : 1},
                                 seed, seed % 2 == 0 ? 3 : 1000000);
      const std::string unit = layer ? "(unit=layer)" : "(unit=lane)";
      for (const std::size_t budget : {composition.floor(), run.prompt / 2}) {
        if (budget < composition.floor()) continue;
        CAPTURE(policy, seed, budget);
        const Fed fed = feed(composition, run, budget, again);
        const std::size_t slots = std::max(most_held(fed), fed.kept.size());
        const double best = with_last_row(run, feed("optimal" + unit, run, slots, again));
        CHECK(with_last_row(run, fed) <= best + 1e-6);
        CHECK(with_last_row(run, feed("future_mass" + unit, run, slots, again)) <= best + 1e-6);
        ++n_bounded;
        const double without = with_last_row(run, feed("optimal" + unit, run, slots));
        CHECK(without <= best + 1e-6);
        n_better += without < best - 1e-6 ? 1 : 0;
        if (fed.held.back().size() != fed.kept.size() + run.decode) continue;
        const std::size_t kept = std::max<std::size_t>(fed.kept.size(), 1);
        CHECK(with_last_row(run, fed) <=
              with_last_row(run, feed("future_mean" + unit, run, kept, again)) + 1e-6);
      }
    }
  }
  CHECK(n_bounded > 200);
  CHECK(n_better > 20);  // the row matters
}

}  // namespace kvsim::policy::test::test_oracles
