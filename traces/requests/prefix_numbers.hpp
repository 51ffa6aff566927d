#pragma once
/// Numbers prefixes of blocks 0, 1, 2, ... as they first occur.
#include <boost/functional/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

#include "sim/base/error.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

class PrefixNumbers {
 public:
  explicit PrefixNumbers(Hashing hashing) : chained_(hashing == Hashing::chained) {}

  /// The number of the prefix that ends with block `id` behind the prefix of number `before`; kNone: `id` is
  /// the first. Throws Error(input) for more than 4,294,967,295 prefixes.
  std::uint32_t number(std::uint32_t before, BlockId id) {
    if (numbers_.size() >= kNone) input_error("the trace has more than 4,294,967,295 different blocks");
    return numbers_.try_emplace({chained_ ? kNone : before, id}, static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(numbers_.size()); }

 private:
  using Key = std::pair<std::uint32_t, BlockId>;
  bool chained_;  ///< an id names its whole prefix
  boost::unordered_flat_map<Key, std::uint32_t, boost::hash<Key>> numbers_;
};

}  // namespace kvsim::requests
