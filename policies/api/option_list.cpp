#include "policies/api/option_list.hpp"

#include <algorithm>

#include "policies/api/call_syntax.hpp"
#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::policy {

Params option_list(std::string_view text, const std::vector<ParamSpec>& specs, std::string_view where) {
  const std::string place(where);
  std::vector<Call> calls;
  try {
    calls = parse_calls(place + "(" + std::string(text) + ")");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  if (calls.size() != 1)
    usage_error("'" + std::string(text) + "' is not a list of NAME=VALUE", place,
                "Such as " + specs[0].name + "=" + specs[0].fallback + ".");
  const std::vector<Call::Argument>& typed = calls[0].arguments;
  const std::vector<std::string> known = param_names(specs);
  for (const Call::Argument& argument : typed)
    if (std::find(known.begin(), known.end(), argument.name) == known.end())
      usage_error("unknown option '" + argument.name + "'", place, suggestion(argument.name, known));
  Params out;
  for (const ParamSpec& spec : specs) {
    const auto given = std::find_if(typed.begin(), typed.end(),
                                    [&](const Call::Argument& a) { return a.name == spec.name; });
    out.entries.push_back(parse_value(spec, given == typed.end() ? spec.fallback : given->value, where));
  }
  return out;
}

}  // namespace kvsim::policy
