#pragma once
/// Chunks of consecutive keys that their mean stands for badly.
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace kvsim::policy {

/// Marks the `count` of `chunks` chunks in which a key is least like the mean of its chunk, by cosine; of
/// equals the first. Chunk c is of the keys c * size, ..., c * size + size - 1; one that is not finite is
/// least like any mean. 1 <= size, count <= chunks.
std::vector<char> outlier_chunks(std::size_t chunks, std::size_t size, std::size_t count,
                                 const std::function<std::span<const float>(std::size_t)>& key);

}  // namespace kvsim::policy
