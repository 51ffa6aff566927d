#pragma once
/// How much a unit may hold beside its budget of B tokens while tokens are generated. A policy stands beside
/// the bound of its own class: what a wider class may hold, a narrower one may not.
#include <string_view>

namespace kvsim::policy {

enum class Holding {
  managed,      ///< never more than B: for a token that finds the unit full another leaves first
  append_only,  ///< B tokens of the prompt, chosen once, and every generated token
  overshoot,    ///< managed, but a query attends B + PolicySpec::overshoot: tokens leave after it
};

/// "managed", "append_only", "overshoot".
std::string_view holding_name(Holding holding);

}  // namespace kvsim::policy
