#pragma once
/// What selections have in common: how much is read, which layers read everything, and the choice of the
/// highest.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Declares `read`: what a query reads, in tokens or as a share of what is stored.
ParamSpec read_param(const std::string& fallback);
/// Declares `dense`: the first layers, which read everything.
ParamSpec dense_param(std::size_t fallback);
/// Whether a layer is one of the `dense` first ones.
inline bool reads_everything(const Params& params, std::size_t layer) {
  return layer < params.count("dense");
}

/// Every layer of a model may be one that reads everything.
class DenseSelector final : public Selector {
 public:
  void select(const Asking& /*asking*/, const StoredTokens& tokens, Reads& reads) override {
    reads.everything(tokens.slots());
  }
};
class DenseSelection final : public Selection {
 public:
  std::unique_ptr<Selector> selector() const override { return std::make_unique<DenseSelector>(); }
};

/// A selector that knows the sizes of its unit.
class UnitSelector : public Selector {
 protected:
  explicit UnitSelector(const CacheUnit& unit)
      : n_lanes_(static_cast<std::size_t>(unit.n_lanes)),
        group_(static_cast<std::size_t>(unit.group)),
        dim_(static_cast<std::size_t>(unit.head_dim)) {}

  const std::size_t n_lanes_, group_, dim_;  // dim_: of a key
};

/// A selection that observes nothing of the prompt but what its selectors do.
class PlainSelection final : public Selection {
 public:
  explicit PlainSelection(std::function<std::unique_ptr<Selector>()> make) : make_(std::move(make)) {}
  std::unique_ptr<Selector> selector() const override { return make_(); }

 private:
  std::function<std::unique_ptr<Selector>()> make_;
};

/// SelectionRule::make of selectors S(rule, unit), with the first layers `dense`.
template <class S, class Rule>
auto selects(Rule (*rule_of)(const Params&)) {
  return [rule_of](const Params& params, const CacheUnit& unit) -> std::unique_ptr<Selection> {
    if (reads_everything(params, static_cast<std::size_t>(unit.layer)))
      return std::make_unique<DenseSelection>();
    return std::make_unique<PlainSelection>(
        [rule = rule_of(params), unit] { return std::make_unique<S>(rule, unit); });
  };
}

/// As made<T, Rule>, with the first layers `dense`.
template <class T, class Rule = void>
inline constexpr auto selected =
    [](const Params& params, const CacheUnit& unit) -> std::unique_ptr<Selection> {
  if (reads_everything(params, static_cast<std::size_t>(unit.layer)))
    return std::make_unique<DenseSelection>();
  return made<T, Rule>(params, unit);
};

/// Calls code(slot) for the slots whose tokens Selector::joined() says may be others; (0, 0): for all.
template <class Code>
void for_changed(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens, Code code) {
  if (own_slot < moved_from) code(own_slot);
  for (std::size_t slot = moved_from; slot < tokens.slots(); ++slot) code(slot);
}

/// What a layer reads that reads all of `stored` tokens.
ReadCount dense_reads(std::size_t stored);
/// What a layer reads whose query heads each choose `head_tokens` of `stored` tokens for themselves.
ReadCount chosen_reads(const CostShape& shape, std::size_t stored, double head_tokens);

/// The value of `read`, which is the whole rule of some selectors.
inline Amount read_of(const Params& params) {
  return params.amount("read");
}
/// SelectionRule::reads of what a layer behind the `dense` first ones reads.
template <ReadCount (*reads)(const Params&, const CostShape&, std::size_t stored)>
ReadCount behind_dense(const Params& params, const CostShape& shape, std::size_t layer, std::size_t stored) {
  return reads_everything(params, layer) ? dense_reads(stored) : reads(params, shape, stored);
}
/// Of selections whose query heads each choose `read` tokens, without an index.
ReadCount read_by_head(const Params& params, const CostShape& shape, std::size_t stored);
inline constexpr auto reads_by_head = behind_dense<read_by_head>;

/// Replaces `out` by the numbers of the min(count, scores.size()) highest scores; of equals the later ones.
void highest_scores(std::span<const float> scores, std::size_t count, std::vector<std::size_t>& out);

/// scores[slot] = scale * query . key of the lane + its bias: what exact attention takes the softmax of.
void exact_scores(const Asking& asking, std::size_t head, const StoredTokens& tokens, std::size_t lane,
                  std::vector<float>& scores);

}  // namespace kvsim::policy
