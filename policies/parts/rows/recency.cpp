#include "policies/parts/rows/recency.hpp"

#include <limits>

namespace kvsim::policy {
namespace {

class OldestLeaves final : public Decoder {
 public:
  explicit OldestLeaves(std::size_t sinks) : sinks_(static_cast<Position>(sinks)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const auto age = [&](Position held) {
      return held < sinks_ ? std::numeric_limits<Position>::max() : held;
    };
    const auto oldest = std::ranges::min_element(arrival.slots, {}, age);
    victims.push_back(static_cast<std::size_t>(oldest - arrival.slots.begin()));
  }

 private:
  Position sinks_;
};

}  // namespace

Start Recency::start(std::size_t budget) const {
  const std::size_t sinks = window_ == 0 ? sinks_ : budget - window_;
  const std::size_t held = sinks - std::min(sinks, first_);  // of the rows
  Start out;
  out.keep.resize(std::min(budget, length_));
  const std::size_t dropped = length_ - out.keep.size();
  for (std::size_t slot = 0; slot < out.keep.size(); ++slot)
    out.keep[slot] = static_cast<Position>(slot < held ? slot : slot + dropped);
  if (decodes_) out.decoder = std::make_unique<OldestLeaves>(sinks);
  return out;
}

}  // namespace kvsim::policy
