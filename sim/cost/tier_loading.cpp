#include "sim/cost/tier_loading.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::cost {

PerTier<LinkTime> loading(const TierLinks& tiers, const PerTier<std::uint64_t>& tokens) {
  const auto bytes = [&](Tier tier) { return static_cast<double>(tokens[tier]) * tiers.token_bytes[tier]; };
  const auto over = [&](Tier tier, double carried, std::uint64_t count) {
    const Link& link = tiers.links[tier];
    if (count == 0 || !(link.bandwidth > 0)) return LinkTime{};
    const double pieces = static_cast<double>(count) * tiers.token_pieces;
    return LinkTime{carried, carried / link.bandwidth + link.latency + pieces * link.operation};
  };
  return {.host = over(Tier::host, bytes(Tier::host) + bytes(Tier::ssd), tokens.host + tokens.ssd),
          .ssd = over(Tier::ssd, bytes(Tier::ssd), tokens.ssd)};
}

double loading_seconds(const PerTier<LinkTime>& links) {
  return std::max(links.host.seconds, links.ssd.seconds);
}

LoadChoice load_up_to(const TierLinks& tiers, const PromptReach& reach, std::uint64_t end,
                      const PrefillSeconds& prefill) {
  if (reach.device > reach.tiers.host || reach.tiers.host > reach.tiers.ssd || end < reach.device ||
      end > reach.tiers.ssd)
    bug("a load beyond what the tiers have");
  LoadChoice out{.cached = end};
  out.tokens.host = std::min(end, reach.tiers.host) - reach.device;
  out.tokens.ssd = end - reach.device - out.tokens.host;
  out.links = cost::loading(tiers, out.tokens);
  out.loading = loading_seconds(out.links);
  out.computing = prefill(end);
  return out;
}

LoadChoice cheapest_load(const TierLinks& tiers, const PromptReach& reach, std::uint64_t block,
                         const PrefillSeconds& prefill) {
  if (block == 0) bug("blocks of no tokens");
  LoadChoice best = load_up_to(tiers, reach, reach.device, prefill);
  const auto try_end = [&](std::uint64_t end) {
    LoadChoice choice = load_up_to(tiers, reach, end, prefill);
    if (choice.seconds() < best.seconds()) best = choice;
  };
  std::uint64_t from = reach.device;
  for (const std::uint64_t to : {reach.tiers.host, reach.tiers.ssd}) {
    for (std::uint64_t end = (from / block + 1) * block; end < to; end += block) try_end(end);
    if (to > from) try_end(to);
    from = to;
  }
  return best;
}

}  // namespace kvsim::cost
