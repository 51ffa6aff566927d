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

std::uint64_t FoundPrompt::found() const {
  return found(Holder::device) + found(Holder::host) + found(Holder::ssd);
}

std::uint64_t FoundPrompt::found(Holder holder) const {
  std::uint64_t sum = 0;
  for (const Stretch& stretch : stretches)
    if (stretch.holder == holder) sum += stretch.tokens;
  return sum;
}

std::uint64_t FoundPrompt::on_device() const {
  std::uint64_t sum = 0;
  for (const Stretch& stretch : stretches) {
    if (stretch.holder != Holder::device) break;
    sum += stretch.tokens;
  }
  return sum;
}

LoadChoice load_up_to(const TierLinks& tiers, const FoundPrompt& found, std::uint64_t end,
                      const PrefillSeconds& prefill) {
  if (end < found.on_device() || end > found.found() || found.found() > found.prompt)
    bug("a load of what is not found");
  LoadChoice out{.cached = end};
  std::uint64_t left = end;
  for (const Stretch& stretch : found.stretches) {
    const std::uint64_t tokens = std::min(left, stretch.tokens);
    left -= tokens;
    if (stretch.holder == Holder::host) out.tokens.host += tokens;
    if (stretch.holder == Holder::ssd) out.tokens.ssd += tokens;
  }
  out.links = cost::loading(tiers, out.tokens);
  out.loading = loading_seconds(out.links);
  out.computing = prefill(end);
  return out;
}

LoadChoice cheapest_load(const TierLinks& tiers, const FoundPrompt& found, std::uint64_t block,
                         const PrefillSeconds& prefill) {
  if (block == 0) bug("blocks of no tokens");
  const std::uint64_t from = found.on_device(), to = found.found();
  LoadChoice best = load_up_to(tiers, found, from, prefill);
  const auto try_end = [&](std::uint64_t end) {
    LoadChoice choice = load_up_to(tiers, found, end, prefill);
    if (choice.seconds() < best.seconds()) best = choice;
  };
  for (std::uint64_t end = (from / block + 1) * block; end < to; end += block) try_end(end);
  if (to > from) try_end(to);
  return best;
}

}  // namespace kvsim::cost
