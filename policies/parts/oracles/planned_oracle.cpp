#include "policies/parts/oracles/planned_oracle.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

class PlannedDecoder final : public Decoder {
 public:
  PlannedDecoder(std::vector<std::uint32_t> until, std::size_t origin, std::size_t first)
      : until_(std::move(until)), origin_(origin), first_(first) {}

  /// The plan evicts tokens that the layer's window has left behind, too: then the unit has room, and what
  /// the plan would have evicted instead of them leaves later.
  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const std::size_t step = static_cast<std::size_t>(arrival.position) - origin_ - first_;
    const auto until = [&](Position held) { return until_[static_cast<std::size_t>(held) - origin_]; };
    const auto victim = std::ranges::min_element(arrival.slots, {}, until);
    if (until(*victim) > step)
      bug("the plan evicts no token before position " + std::to_string(arrival.position), "PlannedOracle");
    victims.push_back(static_cast<std::size_t>(victim - arrival.slots.begin()));
  }

 private:
  std::vector<std::uint32_t> until_;
  std::size_t origin_, first_;  ///< position of column 0; column of step 0
};

}  // namespace

void PlannedOracle::set_future(const Future& future) {
  future_.emplace(future.attention(), future.prompt(), horizon_);
  origin_ = future.first();
  prepare(*future_);
}

Start PlannedOracle::start(std::size_t budget) const {
  RetentionPlan made = plan(future_.value(), budget);
  return {std::move(made.kept),
          std::make_unique<PlannedDecoder>(std::move(made.until), origin_, future_->first())};
}

}  // namespace kvsim::policy
