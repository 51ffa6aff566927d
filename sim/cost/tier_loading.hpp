#pragma once
/// Loading a prompt's keys and values from the tiers behind the device, or computing them again.
#include <cstdint>
#include <functional>
#include <vector>

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

enum class Holder : std::uint8_t { device, host, ssd };

/// Neighbouring tokens of a prompt in one place: whole blocks, but for the last of the prompt.
struct Stretch {
  Holder holder = Holder::device;
  std::uint64_t tokens = 0;
};

/// What is found of a prompt, from the first token on without a gap, each block in the nearest place that has
/// it.
struct FoundPrompt {
  std::uint64_t prompt = 0;  ///< tokens of it, found ones included
  std::vector<Stretch> stretches{};

  std::uint64_t found() const;
  std::uint64_t found(Holder holder) const;
  std::uint64_t on_device() const;  ///< of the first tokens, before the first that would have to be loaded
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

/// Returns the choice that has the first `end` tokens, on_device() <= end <= found(), without computing them.
LoadChoice load_up_to(const TierLinks& tiers, const FoundPrompt& found, std::uint64_t end,
                      const PrefillSeconds& prefill);
/// Returns the fastest of all choices that load whole blocks of `block` tokens, or all that is found; of
/// equally fast ones the one that loads least. Every one of them is tried, because their seconds have no
/// simple shape: latency speaks for loading much or nothing, deep tokens take longer to compute than early
/// ones, and the last few are computed in the time it takes to read the weights.
LoadChoice cheapest_load(const TierLinks& tiers, const FoundPrompt& found, std::uint64_t block,
                         const PrefillSeconds& prefill);

}  // namespace kvsim::cost
