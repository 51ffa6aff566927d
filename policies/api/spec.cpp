#include "policies/api/spec.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {

const Params::Entry& Params::find(std::string_view name, ParamType type) const {
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  if (entry == entries.end())
    bug("policy asks for parameter " + std::string(name) + ", which its spec lacks");
  if (entry->type != type)
    bug("policy asks for parameter " + std::string(name) + " as another type than its spec's");
  return *entry;
}

std::size_t Params::count(std::string_view name) const {
  return static_cast<std::size_t>(find(name, ParamType::count).number);
}

double Params::real(std::string_view name) const {
  return find(name, ParamType::real).number;
}

bool Params::flag(std::string_view name) const {
  return find(name, ParamType::flag).number != 0;
}

const std::string& Params::word(std::string_view name) const {
  const bool pool = std::any_of(entries.begin(), entries.end(),
                                [&](const Entry& e) { return e.name == name && e.type == ParamType::pool; });
  return find(name, pool ? ParamType::pool : ParamType::choice).text;
}

std::string Params::text() const {
  std::string out;
  for (const Entry& entry : entries) out += (out.empty() ? "" : ",") + entry.name + "=" + entry.text;
  return out;
}

}  // namespace kvsim::policy
