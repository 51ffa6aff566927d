#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/tier_loading.hpp"

namespace kvsim::cost::test_tier_loading {
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
  const FoundPrompt found{.prompt = 10,
                          .stretches = {{Holder::device, 2}, {Holder::host, 4}, {Holder::ssd, 4}}};
  std::map<std::uint64_t, double> seconds{{2, 9}, {4, 8}, {6, 5}, {8, 4.9}, {10, 0.1}};
  const auto prefill = [&](std::uint64_t cached) { return seconds.at(cached); };
  // Loads take 2.5, 4, max(4.9, 3.25) and max(5.8, 4.5) s: totals 9, 10.5, 9, 9.8 and 5.9.
  LoadChoice choice = cheapest_load(hand_links(), found, 2, prefill);
  CHECK(choice.cached == 10);
  CHECK(choice.tokens.host == 4);
  CHECK(choice.tokens.ssd == 4);
  CHECK(choice.loading == Approx(5.8));
  CHECK(choice.seconds() == Approx(5.9));
  // Without the last one, nothing and the host's four tokens take 9 s both: the smaller load is chosen.
  seconds[10] = 4.8;
  choice = cheapest_load(hand_links(), found, 2, prefill);
  CHECK(choice.cached == 2);
  CHECK(choice.loading == 0);
  CHECK(choice.links.host.bytes == 0);
  // A part of the host's: the first of its two blocks.
  seconds[4] = 1;
  choice = cheapest_load(hand_links(), found, 2, prefill);
  CHECK(choice.cached == 4);
  CHECK(choice.tokens.host == 2);
  CHECK(choice.tokens.ssd == 0);
  CHECK(choice.seconds() == Approx(3.5));
  // The device's own blocks behind a gap are there for nothing once the gap is loaded: two tokens of the host
  // make six of them.
  const FoundPrompt gap{.prompt = 10,
                        .stretches = {{Holder::device, 2}, {Holder::host, 2}, {Holder::device, 4}}};
  CHECK(gap.on_device() == 2);
  CHECK(gap.found(Holder::device) == 6);
  seconds = {{2, 9}, {4, 8}, {6, 5}, {8, 4.9}};
  choice = cheapest_load(hand_links(), gap, 2, prefill);
  CHECK(choice.cached == 8);
  CHECK(choice.tokens.host == 2);
  CHECK(choice.loading == Approx(2.5));
  CHECK(choice.seconds() == Approx(7.4));
}

TEST_CASE("limits of loading", "[tier_loading]") {
  const FoundPrompt everything_near{.prompt = 7, .stretches = {{Holder::device, 7}}};
  const auto prefill = [](std::uint64_t cached) { return 8.0 - static_cast<double>(cached); };
  CHECK(cheapest_load(hand_links(), everything_near, 2, prefill).loading == 0);
  const FoundPrompt all_away{.prompt = 7, .stretches = {{Holder::ssd, 7}}};
  TierLinks links = hand_links();
  links.links = {.host = {.bandwidth = 1e-9}, .ssd = {.bandwidth = 1e-9}};
  CHECK(cheapest_load(links, all_away, 2, prefill).cached == 0);
  links.links = {.host = {.bandwidth = 1e12}, .ssd = {.bandwidth = 1e12}};
  CHECK(cheapest_load(links, all_away, 2, prefill).cached == 7);
  CHECK_THROWS_AS(load_up_to(links, all_away, 8, prefill), Error);
  CHECK_THROWS_AS(cheapest_load(links, all_away, 0, prefill), Error);
}

namespace {

/// Every end is tried; where each token comes from stands in a text: d, h and s.
std::pair<std::uint64_t, double> tried_one_by_one(const TierLinks& links, const std::string& places,
                                                  std::uint64_t block, const std::vector<double>& seconds) {
  const std::size_t first = std::min(places.find_first_not_of('d'), places.size());
  std::pair<std::uint64_t, double> best{first, seconds[first]};
  for (std::size_t end = first + 1; end <= places.size(); ++end) {
    if (end % block != 0 && end != places.size()) continue;
    const std::string loaded = places.substr(first, end - first);
    const auto of = [&](char tier) {
      return static_cast<double>(std::count(loaded.begin(), loaded.end(), tier));
    };
    const double away = of('h') + of('s');
    const Link &host = links.links.host, &ssd = links.links.ssd;
    const double host_s =
        (of('h') * links.token_bytes.host + of('s') * links.token_bytes.ssd) / host.bandwidth + host.latency +
        away * links.token_pieces * host.operation;
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
    // Blocks are where chance puts them, but mostly where the one before is; the last may not be whole.
    std::string places;
    FoundPrompt found;
    for (std::uint64_t i = 0, blocks = below(10, 9); i < blocks; ++i) {
      const bool stays = !places.empty() && draw(30 + i) < 0.6;
      const char place = stays ? places.back() : "dhs"[below(50 + i, 3)];
      const std::uint64_t tokens = i + 1 < blocks ? block : 1 + below(11, block);
      if (!stays)
        found.stretches.push_back({place == 'd'   ? Holder::device
                                   : place == 'h' ? Holder::host
                                                  : Holder::ssd,
                                   0});
      found.stretches.back().tokens += tokens;
      places += std::string(tokens, place);
    }
    found.prompt = places.size() + below(13, 8);
    // Any table of seconds: nothing about its shape is used.
    std::vector<double> seconds;
    for (std::uint64_t cached = 0; cached <= found.prompt; ++cached)
      seconds.push_back(8 * draw(100 + cached) + 0.6 * static_cast<double>(found.prompt - cached));
    const LoadChoice choice =
        cheapest_load(links, found, block, [&](std::uint64_t cached) { return seconds.at(cached); });
    const auto [end, total] = tried_one_by_one(links, places, block, seconds);
    CAPTURE(seed);
    CHECK(choice.cached == end);
    CHECK(choice.seconds() == Approx(total));
    const std::string used = places.substr(0, end);
    CHECK(choice.tokens.host == static_cast<std::uint64_t>(std::count(used.begin(), used.end(), 'h')));
    CHECK(choice.tokens.ssd == static_cast<std::uint64_t>(std::count(used.begin(), used.end(), 's')));
    CHECK(found.found() == places.size());
    if (found.on_device() == places.size()) continue;
    ++(end == found.on_device() ? nothing : end == places.size() ? everything : part);
  }
  // The draws are such that each happens often.
  CHECK(std::min({nothing, part, everything}) > 300);
}

}  // namespace kvsim::cost::test_tier_loading
