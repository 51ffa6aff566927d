#include "policies/parts/rows/held_rows.hpp"

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/logits.hpp"
#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// Shows `observer` the last rows of attention among tokens at ascending `positions`.
void show_rows(Eviction& observer, const CacheUnit& unit, const HeldRows& held,
               std::span<const Position> positions, const LogitRule& rule) {
  const std::size_t n = positions.size(), rows = std::min(observer.prompt_rows(), n);
  std::vector<float> p(rows * n);
  std::vector<double> logits(n);
  for (int head = 0; head < unit.n_query_heads() && rows > 0; ++head) {
    const MatrixView queries = held.queries(static_cast<std::size_t>(head)),
                     keys = held.keys(static_cast<std::size_t>(head / unit.group));
    const DotRows products(keys.data, keys.stride, n, keys.cols);
    for (std::size_t i = n - rows; i < n; ++i) {
      // Positions ascend, so what the row sees are the last ones.
      std::size_t first = 0;
      while (!unit.sees(static_cast<std::size_t>(positions[i]), static_cast<std::size_t>(positions[first])))
        ++first;
      const std::span<double> seen = std::span(logits).subspan(first, i + 1 - first);
      products.products(queries.row(i).data(), i + 1, logits.data());
      for (double& logit : seen) logit = capped(rule.scale * logit, rule.cap);
      softmax(seen, static_cast<double>(rule.sinks[static_cast<std::size_t>(head)]));
      float* const row = p.data() + (i - (n - rows)) * n;
      std::fill_n(row, n, 0.0F);
      for (std::size_t j = first; j <= i; ++j) row[j] = static_cast<float>(seen[j - first]);
    }
    observer.observe({head, n - rows, n, {p.data(), rows, n, n}});
  }
}

}  // namespace

Needs needs_of_held(const Part& base) {
  Needs out = base.needs();
  out.decode_rows = false;
  if (out.prompt_rows != RowNeed::none || out.queries) out.keys = out.queries = true;
  return out;
}

Needs needs_anew(const Part& base) {
  Needs out = needs_of_held(base);
  out.prompt_rows = RowNeed::none;
  return out;
}

void check_held(const std::string& policy, const Part& base) {
  const Needs needs = base.needs();
  const auto refuse = [&](const std::string& why) { usage_error(policy + why, "base=" + base.text()); };
  if (needs.prompt_rows == RowNeed::all)
    refuse(
        " ranks what is held anew, and what earlier rows attended is gone: its base may look at the last rows alone");
  if (needs.positions || needs.classes || needs.surprises || needs.output_weights ||
      (base.params.has("file") && !base.spec->make_calibrator))
    refuse(
        " shows its base what is held as if it were a prompt: keys, values, queries and rows, and nothing else");
  if (KeepRule::of(base.params).stream) refuse(" ranks at once, its base takes tokens one by one");
}

LogitRule LogitRule::of(const Prompt& prompt, const CacheUnit& unit, const Needs& needs) {
  LogitRule out;
  if (needs.keys) out.rotary = prompt.rotary();
  if (!needs.queries) return out;
  out.scale = prompt.scale();
  out.cap = prompt.cap();
  for (int head = 0; head < unit.n_query_heads(); ++head) out.sinks.push_back(prompt.sink(head));
  return out;
}

std::unique_ptr<Eviction> ranked(const Part& base, const CacheUnit& unit, const HeldRows& held,
                                 std::span<const Position> positions, const LogitRule& rule,
                                 std::size_t first) {
  std::unique_ptr<Eviction> out = base.make_eviction(unit);
  show_rows(*out, unit, held, positions, rule);
  out->finish_prompt(HeldPrompt(held, positions, rule, first));
  return out;
}

}  // namespace kvsim::policy
