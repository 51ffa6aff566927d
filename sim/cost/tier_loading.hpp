#pragma once
/// Loading a prompt's keys and values from the tiers behind the device, or computing them again.
#include <cstdint>
#include <functional>

#include "sim/cost/latency.hpp"
#include "sim/cost/machine.hpp"

namespace kvsim::cost {

/// Where keys and values lie, and what a load costs.
struct TierLinks {
  PerTier<Link> links{};          ///< towards the device; a link without bandwidth is not crossed
  PerTier<double> token_bytes{};  ///< of a token on one device, as the tier stores it
  double token_pieces = 0;        ///< contiguous pieces of a token, for Link::operation
};

/// Returns what crosses the links when so many tokens of each tier are loaded at once. Each link takes bytes
/// / bandwidth + latency + pieces * operation; what lies on the SSD crosses both.
PerTier<LinkTime> loading(const TierLinks& tiers, const PerTier<std::uint64_t>& tokens);
/// Both links carry at the same time.
double loading_seconds(const PerTier<LinkTime>& links);

/// How far the tokens of a prompt reach that a tier has without a gap, from the first token on: device <=
/// host
/// <= ssd <= prompt. What a nearer tier has is not loaded from the next.
struct PromptReach {
  std::uint64_t prompt = 0, device = 0;
  PerTier<std::uint64_t> tiers{};
};

/// A prompt whose first tokens are on the device or loaded, and whose others are computed.
struct LoadChoice {
  std::uint64_t cached = 0;         ///< tokens that are not computed
  PerTier<std::uint64_t> tokens{};  ///< loaded from each tier
  PerTier<LinkTime> links{};
  double loading = 0, computing = 0;  ///< s; computing begins when everything is loaded

  double seconds() const { return loading + computing; }
};

/// Seconds of computing a prompt whose first `cached` tokens are there.
using PrefillSeconds = std::function<double(std::uint64_t cached)>;

/// Returns the choice that has the first `end` tokens, device <= end <= ssd, without computing them.
LoadChoice load_up_to(const TierLinks& tiers, const PromptReach& reach, std::uint64_t end,
                      const PrefillSeconds& prefill);
/// Returns the fastest of all choices that load whole blocks of `block` tokens from the tiers, at the end of
/// a tier's reach also a part of one; of equally fast ones the one that loads least. Every one of them is
/// tried, because their seconds have no simple shape: latency speaks for loading much or nothing, deep tokens
/// take longer to compute than early ones, and the last few are computed in the time it takes to read the
/// weights.
LoadChoice cheapest_load(const TierLinks& tiers, const PromptReach& reach, std::uint64_t block,
                         const PrefillSeconds& prefill);

}  // namespace kvsim::cost
