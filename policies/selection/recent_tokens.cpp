// The first and the newest tokens: a control.
#include <algorithm>

#include "policies/parts/index/reading.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy::recent_tokens {
namespace {

struct Rule {
  Amount read;
  std::size_t sinks = 0;
};

/// Chooses by position alone, for all heads alike.
class RecentSelector final : public Selector {
 public:
  RecentSelector(const Rule& rule, const CacheUnit& /*unit*/) : rule_(rule) {}

  void select(const Asking& /*asking*/, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = rule_.read.of(slots);
    const std::vector<std::size_t> order = least_first(tokens.positions());
    const std::size_t first = std::min(rule_.sinks, count);
    for (std::size_t head = 0; head < reads.heads(); ++head) {
      std::vector<std::size_t>& of = reads.of(head);
      of.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first));
      of.insert(of.end(), order.end() - static_cast<std::ptrdiff_t>(count - first), order.end());
    }
  }

 private:
  Rule rule_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("sinks")};
}

ReadCount reads_of(const Params& params, const CostShape& /*shape*/, std::size_t stored) {
  const auto count = static_cast<double>(params.amount("read").of(stored));
  // The newest tokens, and before them the first.
  return {.head_tokens = count,
          .lane_tokens = count,
          .run_tokens = params.count("sinks") > 0 ? count / 2 : count};
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "recent_tokens",
      .summary = "reads the first and the newest tokens: a control",
      .details =
          "What streaming_llm keeps, read from a cache that holds everything: the first `sinks` stored "
          "tokens and the newest ones. Both give the same attention; this one stores more.",
      .params = {read_param("1024"),
                 count_param("sinks", "4", {0, 65536}, "first stored tokens that are always read", "tokens"),
                 dense_param(0)},
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<RecentSelector>(rule_of)}};
}

}  // namespace kvsim::policy::recent_tokens
