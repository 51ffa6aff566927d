#pragma once
/// A golden checkpoint and a prompt that it has read, for tests of the closed loop.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/loop/closed_loop.hpp"
#include "tests/unit/model/golden_checkpoint.hpp"
#include "traces/capture/prompt_run.hpp"

namespace kvsim::sim {

struct Place {
  explicit Place(const std::string& variant, std::size_t prompt_tokens = 24)
      : golden(variant), prompt(first_tokens(prompt_tokens)), trace(read()) {}

  capture::Prompt first_tokens(std::size_t n) const {
    const std::vector<std::int32_t> tokens = golden.tokens();
    REQUIRE(tokens.size() >= n);
    capture::Prompt out;
    out.ids.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
    return out;
  }

  trace::MemoryTrace read() const {
    Progress progress;
    return capture::run_prompt(
        prompt, golden.config, golden.weights,
        {.model_dir = "golden", .positions = prompt.ids.size() + kNew, .threads = 1, .logprobs = true},
        progress);
  }

  static LoopRequest request(const std::vector<std::string>& policies,
                             const std::vector<std::string>& budgets) {
    LoopRequest request;
    for (const std::string& policy : policies)
      for (const std::string& budget : budgets)
        request.cells.push_back({policy::parse_composition(policy, policy::builtin()), parse_budget(budget)});
    request.max_new_tokens = kNew;
    request.threads = 1;
    return request;
  }

  LoopOutcome run(const std::vector<std::string>& policies, const std::vector<std::string>& budgets,
                  const trace::Cut& cut = {}, unsigned threads = 1,
                  const std::vector<std::int32_t>& answer = {}) {
    LoopRequest asked = request(policies, budgets);
    asked.threads = threads;
    asked.turns.front().answer = answer;
    return run(asked, cut);
  }

  LoopOutcome run(const LoopRequest& request, const trace::Cut& cut) { return turns(request, cut).front(); }

  std::vector<LoopOutcome> turns(const LoopRequest& request, const trace::Cut& cut) {
    const trace::Sequence sequence(trace, 0, cut);
    Progress progress;
    return closed_loop(sequence, prompt.ids, golden.config, golden.weights, request, progress);
  }

  /// Replays the cells on a recorded run of the same tokens, cut at the same place.
  Outcome replayed(const std::string& variant, const LoopRequest& request, const LoopOutcome& loop,
                   const trace::Cut& cut) const {
    Place whole(variant, prompt.ids.size());
    whole.prompt.ids.insert(whole.prompt.ids.end(), loop.references[0].tokens.begin(),
                            loop.references[0].tokens.end() - 1);
    const trace::MemoryTrace recorded = whole.read();
    Request open;
    open.cells = request.cells;
    open.decisions = true;
    open.threads = 1;
    Progress progress;
    return replay(trace::Sequence(recorded, 0, cut), open, progress);
  }

  static constexpr std::size_t kNew = 5;
  model::GoldenCheckpoint golden;
  capture::Prompt prompt;
  trace::MemoryTrace trace;
};

inline bool same(const StreamOutcome& a, const StreamOutcome& b) {
  if (a.tokens != b.tokens || a.resident != b.resident || a.held_tokens != b.held_tokens) return false;
  if (a.measures.size() != b.measures.size()) return false;
  for (std::size_t i = 0; i < a.measures.size(); ++i)
    if (a.measures[i].kl != b.measures[i].kl || a.measures[i].log_p != b.measures[i].log_p ||
        a.measures[i].rank != b.measures[i].rank)
      return false;
  return true;
}

}  // namespace kvsim::sim
