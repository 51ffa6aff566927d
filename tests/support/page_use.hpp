#pragma once
/// The pages that a replayed lane uses, counted: what the expected numbers of sim/cost are held against.
#include <cstdint>
#include <span>

#include "sim/base/error.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::cost {

/// Slots and pages of a replayed lane whose tokens never move. This is a count, while memory_at() uses
/// expected numbers.
struct PageUse {
  std::uint64_t slots = 0;  ///< tokens held
  std::uint64_t pages = 0;  ///< pages with a token in them
};
/// Returns the use at a decode step (0: right after the prompt), with the token at position i in page i /
/// page. `lane` is in order of position, as a replay records it.
inline PageUse page_use(std::span<const sim::ResidentInterval> lane, std::uint32_t step, std::uint64_t page) {
  if (page == 0) usage_error("a page of zero tokens holds nothing", "page");
  PageUse use;
  std::uint64_t last_page = ~std::uint64_t{0};
  for (const sim::ResidentInterval& held : lane) {
    if (step < held.first || step >= held.last) continue;
    ++use.slots;
    const std::uint64_t here = static_cast<std::uint64_t>(held.position) / page;
    if (here != last_page) ++use.pages;
    last_page = here;
  }
  return use;
}

}  // namespace kvsim::cost
