#include "sim/replay/idle_parts.hpp"

namespace kvsim::sim {

std::string idle_allocation(const policy::Composition& composition) {
  const std::string& eviction = composition.eviction.spec->name;
  return composition.allocation.spec->name + " gave every lane the same, as if it were not there" +
         (composition.layer_unit()
              ? ": " + eviction + " keeps one set per layer, which leaves its heads nothing to compete for"
              : "");
}

std::string idle_representation(const policy::Composition& composition) {
  return composition.representation->spec->name + " changed no number that was read";
}

std::string idle_selection(const policy::Composition& composition) {
  return composition.selection->spec->name + " left nothing out: queries read all that is held";
}

std::optional<std::size_t> kept_ends(std::span<const policy::Position> kept, std::size_t first_held,
                                     std::size_t prompt) {
  if (kept.empty() || kept.size() >= prompt - first_held) return {};
  const std::vector<policy::Position> all = policy::ascending(kept);
  std::size_t first = 0;
  while (first < all.size() && static_cast<std::size_t>(all[first]) == first_held + first) ++first;
  for (std::size_t i = first; i < all.size(); ++i)
    if (static_cast<std::size_t>(all[i]) != prompt - all.size() + i) return {};
  return first;
}

std::string idle_scores(const policy::Composition& composition, std::span<const IdleLane> lanes) {
  const policy::PolicySpec& eviction = *composition.eviction.spec;
  if (lanes.empty() || !eviction.scored() || !lanes.front().kept_ends) return {};
  const std::size_t first = *lanes.front().kept_ends;
  if (std::ranges::any_of(lanes, [&](const IdleLane& lane) { return lane.kept_ends != first; })) return {};
  const std::string kept =
      first == 0 ? "only the last tokens of the prompt in every lane, as window does"
                 : "the first " + std::to_string(first) +
                       " tokens of the prompt and its last ones in every lane, as streaming_llm does";
  return eviction.name + " kept " + kept + ": what it keeps whatever the score fills the budget";
}

}  // namespace kvsim::sim
