// Keeps every token: the reference that every other policy is measured against.
#include <numeric>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy::full {
namespace {

class Full final : public Eviction {
 public:
  void finish_prompt(const Prompt& prompt) override { length_ = prompt.length(); }
  Start start(std::size_t /*budget*/) const override {
    Start out;
    out.keep.resize(length_);
    std::iota(out.keep.begin(), out.keep.end(), Position{0});
    return out;
  }

 private:
  std::size_t length_ = 0;
};

Cost cost_of(const Params&, const CostShape&) {
  return {.appends = true};
}

}  // namespace

PolicySpec spec() {
  return {.name = "full",
          .aliases = {"fullkv"},
          .summary = "keeps everything, whatever the budget",
          .details =
              "The reference: no position ever leaves, so its attention loss is 0 at every budget and the "
              "tokens it keeps are those of the whole sequence.",
          .cost = cost_of,
          .rule = EvictionRule{.own_budget = true, .keeps_all = true, .make = made<Full>}};
}

}  // namespace kvsim::policy::full
