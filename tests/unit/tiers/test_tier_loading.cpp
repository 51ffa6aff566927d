#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/tier_loading.hpp"

namespace kvsim::cost {
namespace {

/// Numbers that are exact in binary wherever two choices must take the same time.
TierLinks hand_links() {
  return {.links = {.host = {.bandwidth = 10, .latency = 1, .operation = 0.5},
                    .ssd = {.bandwidth = 4, .latency = 2, .operation = 0.25}},
          .token_bytes = {.host = 5, .ssd = 2},
          .token_pieces = 0.5};
}

}  // namespace

TEST_CASE("what crosses the links of two tiers, worked by hand", "[tier_loading]") {
  // Four tokens of 5 bytes in host memory, six of 2 bytes on the SSD: the host's link carries 32 bytes in
  // five pieces, the SSD's 12 bytes in three.
  const auto links = loading(hand_links(), {.host = 4, .ssd = 6});
  CHECK(links.host.bytes == 32);
  CHECK(links.host.seconds == Approx(3.2 + 1 + 2.5));
  CHECK(links.ssd.bytes == 12);
  CHECK(links.ssd.seconds == Approx(3 + 2 + 0.75));
  CHECK(loading_seconds(links) == Approx(6.7));
  // A slow SSD is what is waited for.
  CHECK(loading_seconds(loading(hand_links(), {.host = 0, .ssd = 20})) == Approx(10 + 2 + 2.5));
  // Nothing is loaded in no time; latency is paid once.
  CHECK(loading_seconds(loading(hand_links(), {})) == 0);
  CHECK(loading(hand_links(), {.host = 1, .ssd = 0}).ssd.seconds == 0);
}

TEST_CASE("a machine that is the host has no link to host memory to cross", "[tier_loading]") {
  TierLinks links = hand_links();
  links.links.host = {};
  CHECK(loading(links, {.host = 4, .ssd = 6}).host.bytes == 0);
  CHECK(loading_seconds(loading(links, {.host = 4, .ssd = 6})) == Approx(5.75));
}

TEST_CASE("the fastest way to have a prompt, worked by hand", "[tier_loading]") {
  // Ten tokens in blocks of two: two are on the device, four more in host memory, the last four on the SSD.
  const PromptReach reach{.prompt = 10, .device = 2, .tiers = {.host = 6, .ssd = 10}};
  std::map<std::uint64_t, double> seconds{{2, 9}, {4, 8}, {6, 5}, {8, 4.9}, {10, 0.1}};
  const auto prefill = [&](std::uint64_t cached) { return seconds.at(cached); };
  // Loads take 2.5, 4, max(4.9, 3.25) and max(5.8, 4.5) s: totals 9, 10.5, 9, 9.8 and 5.9.
  LoadChoice choice = cheapest_load(hand_links(), reach, 2, prefill);
  CHECK(choice.cached == 10);
  CHECK(choice.tokens.host == 4);
  CHECK(choice.tokens.ssd == 4);
  CHECK(choice.loading == Approx(5.8));
  CHECK(choice.seconds() == Approx(5.9));
  // Without the last one, nothing and the host's four tokens take 9 s both: the smaller load is chosen.
  seconds[10] = 4.8;
  choice = cheapest_load(hand_links(), reach, 2, prefill);
  CHECK(choice.cached == 2);
  CHECK(choice.loading == 0);
  CHECK(choice.links.host.bytes == 0);
  // A part of the host's: the first of its two blocks.
  seconds[4] = 1;
  choice = cheapest_load(hand_links(), reach, 2, prefill);
  CHECK(choice.cached == 4);
  CHECK(choice.tokens.host == 2);
  CHECK(choice.tokens.ssd == 0);
  CHECK(choice.seconds() == Approx(3.5));
}

TEST_CASE("limits of loading", "[tier_loading]") {
  const PromptReach everything_near{.prompt = 7, .device = 7, .tiers = {.host = 7, .ssd = 7}};
  const auto prefill = [](std::uint64_t cached) { return 8.0 - static_cast<double>(cached); };
  CHECK(cheapest_load(hand_links(), everything_near, 2, prefill).loading == 0);
  const PromptReach all_away{.prompt = 7, .device = 0, .tiers = {.host = 0, .ssd = 7}};
  TierLinks links = hand_links();
  links.links = {.host = {.bandwidth = 1e-9}, .ssd = {.bandwidth = 1e-9}};
  CHECK(cheapest_load(links, all_away, 2, prefill).cached == 0);
  links.links = {.host = {.bandwidth = 1e12}, .ssd = {.bandwidth = 1e12}};
  CHECK(cheapest_load(links, all_away, 2, prefill).cached == 7);
  CHECK_THROWS_AS(load_up_to(links, all_away, 8, prefill), Error);
  CHECK_THROWS_AS(cheapest_load(links, all_away, 0, prefill), Error);
}

namespace {

/// Every end is tried, token by token: where each token comes from stands in a list.
std::pair<std::uint64_t, double> tried_one_by_one(const TierLinks& links, const PromptReach& reach,
                                                  std::uint64_t block, const std::vector<double>& seconds) {
  std::pair<std::uint64_t, double> best{reach.device, seconds[reach.device]};
  for (std::uint64_t end = reach.device + 1; end <= reach.tiers.ssd; ++end) {
    if (end % block != 0 && end != reach.tiers.host && end != reach.tiers.ssd) continue;
    std::vector<char> from;
    for (std::uint64_t token = reach.device; token < end; ++token)
      from.push_back(token < reach.tiers.host ? 'h' : 's');
    const auto of = [&](char tier) {
      return static_cast<double>(std::count(from.begin(), from.end(), tier));
    };
    const Link &host = links.links.host, &ssd = links.links.ssd;
    const double host_s =
        (of('h') * links.token_bytes.host + of('s') * links.token_bytes.ssd) / host.bandwidth + host.latency +
        (of('h') + of('s')) * links.token_pieces * host.operation;
    const double ssd_s = of('s') == 0 ? 0
                                      : of('s') * links.token_bytes.ssd / ssd.bandwidth + ssd.latency +
                                            of('s') * links.token_pieces * ssd.operation;
    const double total = std::max(host_s, ssd_s) + seconds[end];
    if (total < best.second) best = {end, total};
  }
  return best;
}

}  // namespace

TEST_CASE("the fastest way is that of trying every one", "[tier_loading]") {
  std::size_t nothing = 0, part = 0, everything = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const auto draw = [&](std::uint64_t what) { return uniform01(combine({seed, what})); };
    const auto below = [&](std::uint64_t what, std::uint64_t n) {
      return static_cast<std::uint64_t>(draw(what) * static_cast<double>(n));
    };
    TierLinks links{
        .links = {.host = {.bandwidth = 1 + 40 * draw(0), .latency = draw(1), .operation = 0.1 * draw(2)},
                  .ssd = {.bandwidth = 1 + 10 * draw(3), .latency = draw(4), .operation = 0.1 * draw(5)}},
        .token_bytes = {.host = 1 + 4 * draw(6), .ssd = 1 + 4 * draw(7)},
        .token_pieces = draw(8)};
    const std::uint64_t block = 1 + below(9, 6);
    PromptReach reach;
    reach.device = below(10, 8);
    reach.tiers.host = reach.device + below(11, 12);
    reach.tiers.ssd = reach.tiers.host + below(12, 12);
    reach.prompt = reach.tiers.ssd + below(13, 8);
    // Any table of seconds: nothing about its shape is used.
    std::vector<double> seconds;
    for (std::uint64_t cached = 0; cached <= reach.prompt; ++cached)
      seconds.push_back(8 * draw(100 + cached) + 0.6 * static_cast<double>(reach.prompt - cached));
    const LoadChoice choice =
        cheapest_load(links, reach, block, [&](std::uint64_t cached) { return seconds.at(cached); });
    const auto [end, total] = tried_one_by_one(links, reach, block, seconds);
    CAPTURE(seed);
    CHECK(choice.cached == end);
    CHECK(choice.seconds() == Approx(total));
    CHECK(reach.device + choice.tokens.host + choice.tokens.ssd == choice.cached);
    const std::uint64_t away = reach.tiers.ssd - reach.device;
    if (away == 0) continue;
    ++(end == reach.device ? nothing : end == reach.tiers.ssd ? everything : part);
  }
  // The draws are such that each happens often.
  CHECK(std::min({nothing, part, everything}) > 300);
}

}  // namespace kvsim::cost
