#pragma once
/// The shape of a composition before any name in it means something: NAME(KEY=VALUE,...)+NAME(...).
/// White space may stand around every piece. A value reaches to the next comma or closing parenthesis at its
/// own depth, so `max:7` and `h2o(recent=0.5)` are values.
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace kvsim::policy
