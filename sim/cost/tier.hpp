#pragma once
/// The tiers of memory behind the device's own, nearest first.
#include <array>
#include <cstdint>

namespace kvsim::cost {

enum class Tier : std::uint8_t { host, ssd };
inline constexpr std::array kTiers{Tier::host, Tier::ssd};
constexpr const char* tier_name(Tier tier) {
  return tier == Tier::host ? "host" : "ssd";
}

/// One of something for every tier.
template <class T>
struct PerTier {
  T host{}, ssd{};

  T& operator[](Tier tier) { return tier == Tier::host ? host : ssd; }
  const T& operator[](Tier tier) const { return tier == Tier::host ? host : ssd; }
};

}  // namespace kvsim::cost
