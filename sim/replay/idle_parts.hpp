#pragma once
/// Parts of a composition that changed nothing, in words: what is added to an eviction and leaves it as it
/// is, and scores that choose nothing because what is kept whatever the score fills the budget.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policies/api/cache_rows.hpp"
#include "policies/api/composition.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// By cell, in the order of the request.
using IdleParts = std::vector<std::vector<std::string>>;

/// replay(), and what changed nothing in it.
Outcome replay(const trace::Sequence& sequence, const Request& request, Progress& progress, IdleParts& idle);

/// What a lane says of that.
struct IdleLane {
  /// What is kept of the prompt are its first so many positions and its last, and something between them is
  /// dropped; none: something else.
  std::optional<std::size_t> kept_ends{};
  bool unchanged = false;  ///< a codec holds every number as it came, and nothing beside
};

/// IdleLane::kept_ends of positions in any order, of a prompt that the layer holds from `first_held` on.
std::optional<std::size_t> kept_ends(std::span<const policy::Position> kept, std::size_t first_held,
                                     std::size_t prompt);

/// IdleLane::unchanged of lane `lane` of a codec's rows. `key(position)`, `value(position)`: as they came.
template <class Key, class Value>
bool is_unchanged(const policy::CacheRows& rows, std::size_t lane, Key key, Value value) {
  for (std::size_t slot = 0; slot < rows.slots(); ++slot)
    if (rows.biases(lane)[slot] != 0 ||
        !std::ranges::equal(rows.keys(lane).row(slot), key(rows.positions()[slot])) ||
        !std::ranges::equal(rows.values(lane).row(slot), value(rows.positions()[slot])))
      return false;
  return !rows.has_rest(lane);
}

/// Of an allocation that gave every lane the same number of tokens.
std::string idle_allocation(const policy::Composition& composition);
/// Of a representation all of whose lanes are unchanged, and a selection that left nothing out.
std::string idle_representation(const policy::Composition& composition);
std::string idle_selection(const policy::Composition& composition);
/// Of an eviction whose lanes all keep the same ends of the prompt; empty where a score has chosen, or where
/// there is none.
std::string idle_scores(const policy::Composition& composition, std::span<const IdleLane> lanes);

}  // namespace kvsim::sim
