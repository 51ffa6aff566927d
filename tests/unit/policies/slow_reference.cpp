#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test {
namespace {

/// Removes the lowest unprotected score; `newest` is the last position that is or is about to be resident.
void drop_one(const SlowRule& rule, const Run& run, const Attended& attended, Position newest,
              std::set<Position>& held) {
  Position victim = -1;
  double lowest = 0;
  for (const Position position : held) {  // ascending, so the first of equals is the oldest
    if (position < static_cast<Position>(rule.sinks)) continue;
    if (position > newest - static_cast<Position>(rule.window)) continue;
    const double score = rule.score(run, attended, position);
    if (victim == -1 || score < lowest || (score == lowest && rule.drop_newest_of_equals)) {
      victim = position;
      lowest = score;
    }
  }
  held.erase(victim);
}

std::vector<Position> list(const std::set<Position>& held) {
  return {held.begin(), held.end()};
}

}  // namespace

Fed feed_cutting(const Cut& cut, const Run& run, std::size_t budget) {
  Attended attended;
  std::set<Position> held;
  for (std::size_t query = 0; query < run.prompt; ++query) {
    held.insert(static_cast<Position>(query));
    attended.push_back(held);
  }
  if (held.size() > budget) cut(attended, held, budget, static_cast<Position>(run.prompt) - 1);
  Fed out;
  out.kept.assign(held.begin(), held.end());
  for (std::size_t query = run.prompt; query < run.length(); ++query) {
    if (held.size() == budget) cut(attended, held, budget - 1, static_cast<Position>(query));
    held.insert(static_cast<Position>(query));
    attended.push_back(held);
    out.held.emplace_back(held.begin(), held.end());
  }
  return out;
}

Fed feed_slowly(const SlowRule& rule, const Run& run, std::size_t budget) {
  Attended attended;
  std::set<Position> held;
  const auto arrive = [&](std::size_t query, bool managed) {
    const auto position = static_cast<Position>(query);
    if (managed && held.size() == budget) drop_one(rule, run, attended, position, held);
    held.insert(position);
    attended.push_back(held);
  };
  for (std::size_t query = 0; query < run.prompt; ++query) arrive(query, rule.streams);
  while (held.size() > budget) drop_one(rule, run, attended, static_cast<Position>(run.prompt) - 1, held);
  Fed out;
  out.kept = list(held);
  for (std::size_t query = run.prompt; query < run.length(); ++query) {
    arrive(query, rule.decodes);
    out.held.push_back(list(held));
  }
  return out;
}

double renormalised(const Run& run, const Attended& attended, std::size_t query, Position j) {
  double sum_over_heads = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    double mass = 0;
    for (const Position i : attended[query])
      mass += static_cast<double>(run.p(head, query, static_cast<std::size_t>(i)));
    sum_over_heads += static_cast<double>(run.p(head, query, static_cast<std::size_t>(j))) / mass;
  }
  return sum_over_heads / run.unit.n_query_heads();
}

double mean_row(const Run& run, std::size_t query, Position j) {
  double sum = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head)
    sum += static_cast<double>(run.p(head, query, static_cast<std::size_t>(j)));
  return sum / run.unit.n_query_heads();
}

}  // namespace kvsim::policy::test
