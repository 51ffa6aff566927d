#include "policies/parts/oracles/planned_oracle.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

class PlannedDecoder final : public Decoder {
 public:
  PlannedDecoder(std::vector<std::uint32_t> until, std::size_t first)
      : until_(std::move(until)), first_(first) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const std::size_t step = static_cast<std::size_t>(arrival.position) - first_;
    const auto leaves = [&](Position held) { return until_[static_cast<std::size_t>(held)] == step; };
    const auto victim = std::find_if(arrival.slots.begin(), arrival.slots.end(), leaves);
    if (victim == arrival.slots.end())
      bug("the plan evicts no token before position " + std::to_string(arrival.position), "PlannedOracle");
    victims.push_back(static_cast<std::size_t>(victim - arrival.slots.begin()));
  }

 private:
  std::vector<std::uint32_t> until_;
  std::size_t first_;  ///< position of step 0
};

}  // namespace

void PlannedOracle::set_future(const Future& future) {
  future_.emplace(future.attention(), future.prompt(), horizon_);
  prepare(*future_);
}

Start PlannedOracle::start(std::size_t budget) const {
  RetentionPlan made = plan(future_.value(), budget);
  return {std::move(made.kept), std::make_unique<PlannedDecoder>(std::move(made.until), future_->first())};
}

}  // namespace kvsim::policy
