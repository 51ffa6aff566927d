#pragma once
/// How much a unit may hold beside its budget of B tokens while tokens are generated. A policy is compared
/// with the bound of its own class, because a wider class may hold what a narrower one may not.
#include <string_view>

namespace kvsim::policy {

enum class Holding {
  managed,      ///< never more than B: a token that arrives at a full unit causes an eviction first
  append_only,  ///< B tokens of the prompt, chosen once, and every generated token
  overshoot,    ///< managed, but a query attends up to B + Part::overshoot, because tokens are evicted
                ///< after it
};

/// "managed", "append_only", "overshoot".
std::string_view holding_name(Holding holding);

}  // namespace kvsim::policy
