#pragma once
/// Picks a few items that stand for many.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvsim::policy {

/// Which `count` of a sorted list of n are picked:
/// - random: one at random out of each of `count` contiguous groups [floor(i n / count), floor((i+1) n /
///   count))
/// - first: the first of each of those groups
/// - ends: places floor(i (n - 1) / (count - 1)), so both ends are picked
/// - stride: places i floor(n / count), so a remainder at the far end is never picked
enum class Pick { random, first, ends, stride };

/// Returns `count` <= sorted.size() of them, in the list's order. `key`: for the random draws, one per group.
std::vector<std::uint32_t> picked(std::span<const std::uint32_t> sorted, std::size_t count, Pick pick,
                                  std::uint64_t key = 0);

}  // namespace kvsim::policy
