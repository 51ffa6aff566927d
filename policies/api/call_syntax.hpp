#pragma once
/// The shape of a composition before any name in it means something: NAME(KEY=VALUE,...)+NAME(...).
/// White space may stand around every piece. A value reaches to the next comma or closing parenthesis at its
/// own depth, so `max:7` and `h2o(recent=0.5)` are values.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

struct Call {
  struct Argument {
    std::string name, value;
  };
  std::string name{};
  std::vector<Argument> arguments{};
};

/// The parts between '+', at least one. Throws Error(usage) pointing at the character where the shape breaks,
/// with `form` as what to do.
std::vector<Call> parse_calls(
    std::string_view text,
    std::string_view form =
        "Write EVICTION(name=value,...)+ALLOCATION(name=value,...), e.g. snapkv(window=32)+pyramid");

// Parses the parameters of a rule that is not a policy, typed like a policy's: "rows=8,pool=avg:7".

/// Returns a value for every spec, in their order: the typed one, or the default. Throws Error(usage), placed
/// at `where`, for text of another shape, unknown names and illegal values.
Params option_list(std::string_view text, const std::vector<ParamSpec>& specs, std::string_view where);

}  // namespace kvsim::policy
