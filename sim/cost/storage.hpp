#pragma once
/// Bytes of the keys and values that lanes hold: as they come, or as a representation stores them.
#include <cstdint>
#include <optional>

#include "policies/api/composition.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost {

struct Storage {
  std::uint64_t element_bits = 16;  ///< of a number that is stored as it comes
  std::optional<policy::Part> representation{};
  bool together = false;  ///< the lanes of a layer are one unit of the representation
};

using policy::LaneTokens;

/// Returns what `lanes` lanes of a layer take, a sequence's tables included. A ledger knows no evictions
/// after the prompt: groups that have lost a token count as whole. Throws Error(usage) when it does not fit
/// 64 bits.
policy::Ledger stored_ledger(const Storage& storage, const Model& model, std::uint64_t lanes,
                             const LaneTokens& tokens);
/// Returns the whole bytes of it on the device; every unit is rounded up.
std::uint64_t stored_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                           const LaneTokens& tokens);
/// Returns the bytes that `empty` slots without a token add to it: what they would take with a token, and
/// nothing where full windows are coded at once and that saves more than the slots take.
std::uint64_t empty_bytes(const Storage& storage, const Model& model, std::uint64_t lanes,
                          const LaneTokens& tokens, std::uint64_t empty);
/// Returns how many numbers of a lane are not stored as they come.
double coded_numbers(const Storage& storage, const Model& model, const LaneTokens& tokens);

}  // namespace kvsim::cost
