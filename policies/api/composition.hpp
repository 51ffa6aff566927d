#pragma once
/// The one text form of policies: `eviction(param=value,...)+part(param=value,...)+...`.
///   snapkv(window=32,pool=max:7)+pyramid(beta=20)      h2o      pyramidkv      full+kivi(bits=2)
/// What stands after the eviction is found by its name, in any order: at most one allocation (without one it
/// is `uniform`), at most one representation (without one numbers are stored as they come) and at most one
/// selection (without one every query reads everything that is stored). The first name may be a preset;
/// parameters given to a preset override those of its expansion.
#include <optional>
#include <string>
#include <string_view>

#include "policies/api/registry.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

struct Composition {
  std::string name;  ///< as a table shows it: "snapkv", "snapkv+pyramid", "pyramidkv"
  /// Full expansion with every effective value: "snapkv(window=32,...)+uniform()". It names a representation
  /// and a selection only where there is one.
  std::string params;
  Part eviction, allocation;
  std::optional<Part> representation{}, selection{};

  /// Lanes of a layer share one resident set.
  bool layer_unit() const {
    return eviction.layer_unit() || (representation && representation->layer_unit()) ||
           (selection && selection->layer_unit());
  }
  std::size_t floor() const { return eviction.floor(); }  ///< least budget per lane
  /// Of eviction and representation: what they read of the prompt.
  Needs needs() const {
    return representation ? merged(eviction.needs(), representation->needs()) : eviction.needs();
  }
};

/// What names of kvpress end in, which any name may: SnapKVPress.
inline constexpr const char* kNameEnding = "press";

/// `text` with names as the registry spells them (spelled()); as it is if it has them so.
std::string respelled(std::string_view text, const Registry& registry);

/// Reads what respelled() would return. Throws Error(usage) naming the offending part and the nearest valid
/// spelling: unknown policy or parameter, wrong type, out of range, two parts of one kind, stray text.
Composition parse_composition(std::string_view text, const Registry& registry);

/// The policy of a prefix cache, which stands alone: `slru(protected=0.8)`. Throws Error(usage) as
/// parse_composition.
Part parse_replacement(std::string_view text, const Registry& registry);

}  // namespace kvsim::policy
