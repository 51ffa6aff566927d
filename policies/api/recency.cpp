#include "policies/api/recency.hpp"

namespace kvsim::policy {
namespace {

/// Slots fill in order of position, so behind the sinks they form a ring whose oldest member moves on by one.
class Ring final : public Decoder {
 public:
  explicit Ring(std::size_t sinks) : sinks_(sinks), oldest_(sinks) {}

  std::size_t evict(const Arrival& arrival) override {
    const std::size_t victim = oldest_++;
    if (oldest_ == arrival.slots.size()) oldest_ = sinks_;
    return victim;
  }

 private:
  std::size_t sinks_, oldest_;
};

}  // namespace

void Recency::compress(std::size_t /*budget*/, std::span<Position> keep) const {
  const std::size_t dropped = length_ - keep.size();
  for (std::size_t slot = 0; slot < keep.size(); ++slot)
    keep[slot] = static_cast<Position>(slot < sinks_ ? slot : slot + dropped);
}

std::unique_ptr<Decoder> Recency::decoder(std::size_t /*budget*/, std::span<const Position> /*slots*/) const {
  return std::make_unique<Ring>(sinks_);
}

}  // namespace kvsim::policy
