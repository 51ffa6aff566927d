#pragma once
/// The one text form of policies: `eviction(param=value,...)+allocation(param=value,...)`.
///   snapkv(window=32,pool=max:7)+pyramid(beta=20)      h2o      pyramidkv      xkv
/// A missing allocation is `uniform`. A name may be a preset; parameters given to a preset override those of
/// its expansion (eviction first, then allocation).
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/registry.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

struct Composition {
  std::string name;    ///< as a table shows it: "snapkv", "snapkv+pyramid", "pyramidkv"
  std::string params;  ///< full expansion with every effective value: "snapkv(window=32,...)+uniform()"
  Part eviction, allocation;

  bool layer_unit() const { return eviction.layer_unit(); }  ///< lanes of a layer share one resident set
  std::size_t floor() const { return eviction.floor(); }     ///< least budget per lane
};

/// Throws Error(usage) naming the offending part and the nearest valid spelling: unknown policy or parameter,
/// wrong type, out of range, two evictions, stray text.
Composition parse_composition(std::string_view text, const Registry& registry);

}  // namespace kvsim::policy
