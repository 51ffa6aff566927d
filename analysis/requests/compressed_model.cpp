#include "analysis/requests/compressed_model.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "analysis/cost/cost_study.hpp"
#include "analysis/requests/cache_capacity.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::analysis {
namespace {

/// Seconds that a policy adds, by sim/cost: the same holding with its work and without.
class AddedSeconds {
 public:
  AddedSeconds(serving::ServedModel served, policy::Composition policy, std::optional<sim::Budget> budget,
               std::uint64_t tokens)
      : served_(std::move(served)), policy_(std::move(policy)), budget_(std::move(budget)), tokens_(tokens) {}

  double prefill(std::uint64_t prompt) { return asked(prefills_, prompt, true); }
  double step(std::uint64_t decoding) { return asked(steps_, decoding, false); }

 private:
  double asked(std::map<std::uint64_t, double>& known, std::uint64_t n, bool prefill) {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = known.try_emplace(n, 0.0);
    if (fresh) found->second = prefill ? added(n, 1, true) : added(tokens_, n, false);
    return found->second;
  }

  double added(std::uint64_t prompt, std::uint64_t batch, bool prefill) const {
    cost::Serving serving = cost::served_with(served_.serving, policy_);
    serving.prompt = prompt;
    serving.generate = 2;
    serving.batch = batch;
    std::uint64_t kept = prompt + serving.generate;
    // A prompt that the policy keeps whatever it scores is not compressed.
    if (policy_.floor() > kept) return 0;
    if (budget_ && !policy_.eviction.spec->own_budget())
      kept = std::clamp<std::uint64_t>(budget_tokens_of(prompt), policy_.floor(), kept);
    const cost::Holding holding =
        cost::rule_holding(policy_, served_.model, cost::stored_heads(served_.model, serving.layout), prompt,
                           serving.generate, kept);
    const policy::Cost work = cost::cost_of(policy_, served_.model, prompt, kept);
    const auto seconds = [&](const policy::Cost& of) {
      return prefill ? cost::prefill_time(served_.model, served_.machine, serving, holding, of).seconds()
                     : cost::step_time(served_.model, served_.machine, serving, holding, of, 1).seconds();
    };
    return std::max(0.0, seconds(work) - seconds({}));
  }

  std::uint64_t budget_tokens_of(std::uint64_t prompt) const {
    // A short prompt keeps one token at least, whatever the share.
    if (budget_->unit == sim::Budget::Unit::share && budget_->value * static_cast<double>(prompt) < 1)
      return 1;
    return budget_tokens(*budget_, served_.model, served_.serving.layout, policy_, prompt, 2);
  }

  const serving::ServedModel served_;
  const policy::Composition policy_;
  const std::optional<sim::Budget> budget_;
  const std::uint64_t tokens_;
  std::mutex mutex_;
  std::map<std::uint64_t, double> prefills_{}, steps_{};
};

serving::KeptTokens kept_tokens(const serving::ServedModel& served, const policy::Composition& policy,
                                const std::optional<sim::Budget>& budget, std::uint64_t tokens,
                                double bytes) {
  const auto added = std::make_shared<AddedSeconds>(served, policy, budget, tokens);
  return {.bytes = bytes,
          .compression = [added](std::uint64_t prompt) { return added->prefill(prompt); },
          .step = [added](std::uint64_t decoding) { return added->step(decoding); }};
}

/// What a step reads of what is kept of a prompt of `tokens` tokens, by kind of layer.
serving::KeptTokens::Read read_shares(const serving::ServedModel& served, const StoredPrompt& stored,
                                      std::uint64_t tokens) {
  double held[2] = {}, whole[2] = {}, lanes = 0;  // without a window, with it
  for (const cost::EqualLayers& group : stored.holding.layers) {
    const bool windowed = group.window > 0;
    for (const cost::EqualLanes& equal : group.lanes) {
      const auto count = static_cast<double>(group.layers * equal.lanes);
      held[windowed] += count * static_cast<double>(equal.at(0));
      whole[windowed] += count * static_cast<double>(group.within_window(tokens));
      lanes += count;
    }
  }
  // A kept token takes more or less than it does as it comes.
  const double as_it_comes = static_cast<double>(token_bytes(served)) / lanes;
  const double size = stored.bytes / ((held[0] + held[1]) * as_it_comes);
  const auto share = [&](bool windowed) {
    return whole[windowed] == 0 ? 1 : size * held[windowed] / whole[windowed];
  };
  return {share(false), share(true)};
}

}  // namespace

serving::ServedModel compressed_model(serving::ServedModel served, const policy::Composition& policy,
                                      const std::optional<sim::Budget>& budget, std::uint64_t tokens) {
  cost::require_caches(served.model, "compression");
  const StoredPrompt stored = stored_prompt(served, policy, budget, tokens);
  serving::KeptTokens kept =
      kept_tokens(served, policy, budget, tokens, stored.bytes / static_cast<double>(tokens));
  if (served.model.window > 0) kept.read = read_shares(served, stored, tokens);
  served.kept = std::move(kept);
  return served;
}

serving::ServedModel represented_model(serving::ServedModel served, const policy::Composition& stored,
                                       std::uint64_t tokens) {
  (void)cost::cost_of(stored, served.model, tokens, tokens);  // throws where the shape does not suit
  const cost::Serving with = cost::served_with(served.serving, stored);
  const auto bytes = [&](const cost::Storage& storage) {
    return static_cast<double>(
        cost::stored_bytes(storage, served.model, served.model.kv_heads, {.kept = tokens}));
  };
  const double share = bytes(with.layout.storage) / bytes(served.serving.layout.storage);
  served.kept = kept_tokens(served, stored, std::nullopt, tokens,
                            share * static_cast<double>(serving::token_bytes(served)));
  served.serving = with;
  return served;
}

}  // namespace kvsim::analysis
