#include "policies/parts/rows/recency.hpp"

#include <algorithm>

namespace kvsim::policy {
namespace {

/// Slots fill in order of position, so the slots behind the sinks form a ring; its oldest member moves on by
/// one.
class Ring final : public Decoder {
 public:
  explicit Ring(std::size_t sinks) : sinks_(sinks), oldest_(sinks) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    victims.push_back(oldest_++);
    if (oldest_ == arrival.slots.size()) oldest_ = sinks_;
  }

 private:
  std::size_t sinks_, oldest_;
};

}  // namespace

Start Recency::start(std::size_t budget) const {
  const std::size_t sinks = window_ == 0 ? sinks_ : budget - window_;
  Start out;
  out.keep.resize(std::min(budget, length_));
  const std::size_t dropped = length_ - out.keep.size();
  for (std::size_t slot = 0; slot < out.keep.size(); ++slot)
    out.keep[slot] = static_cast<Position>(slot < sinks ? slot : slot + dropped);
  if (decodes_) out.decoder = std::make_unique<Ring>(sinks);
  return out;
}

}  // namespace kvsim::policy
