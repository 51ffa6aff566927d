#include "sim/base/params.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace kvsim {
namespace {

ParamSpec declared(ParamType type, std::string& name, std::string& fallback, std::string& help,
                   std::string unit = {}) {
  return {.name = std::move(name),
          .type = type,
          .fallback = std::move(fallback),
          .unit = std::move(unit),
          .help = std::move(help)};
}

ParamSpec ranged(ParamSpec spec, ParamRange range) {
  spec.min = range.min;
  spec.max = range.max;
  return spec;
}

}  // namespace

ParamSpec count_param(std::string name, std::string fallback, ParamRange range, std::string help,
                      std::string unit) {
  return ranged(declared(ParamType::count, name, fallback, help, std::move(unit)), range);
}

ParamSpec real_param(std::string name, std::string fallback, ParamRange range, std::string help,
                     std::string unit) {
  return ranged(declared(ParamType::real, name, fallback, help, std::move(unit)), range);
}

ParamSpec share_param(std::string name, std::string fallback, std::string help, std::string unit) {
  return declared(ParamType::share, name, fallback, help, std::move(unit));
}

ParamSpec amount_param(std::string name, std::string fallback, std::string help, std::string unit) {
  return declared(ParamType::amount, name, fallback, help, std::move(unit));
}

ParamSpec flag_param(std::string name, std::string fallback, std::string help) {
  return declared(ParamType::flag, name, fallback, help);
}

ParamSpec choice_param(std::string name, std::string fallback, std::vector<std::string> choices,
                       std::string help, std::string unit) {
  ParamSpec spec = declared(ParamType::choice, name, fallback, help, std::move(unit));
  spec.choices = std::move(choices);
  return spec;
}

ParamSpec pool_param(std::string name, std::string fallback, std::string help) {
  return declared(ParamType::pool, name, fallback, help);
}

ParamSpec policy_param(std::string name, std::string fallback, std::string help) {
  return declared(ParamType::policy, name, fallback, help);
}

ParamSpec word_param(std::string name, std::string fallback, std::string help, std::string unit) {
  return declared(ParamType::word, name, fallback, help, std::move(unit));
}

ParamSpec required_param(std::string name, std::string help) {
  std::string none;
  ParamSpec spec = declared(ParamType::word, name, none, help);
  spec.required = true;
  return spec;
}

const ParamValue& ParamValues::find(std::string_view name) const {
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  if (entry == entries.end())
    bug("parameter " + std::string(name) + " is asked for, and no spec declares it");
  return *entry;
}

const ParamValue& ParamValues::find(std::string_view name, ParamType type) const {
  const Entry& entry = find(name);
  if (entry.type != type)
    bug("parameter " + std::string(name) + " is asked for as another type than its spec's");
  return entry;
}

std::uint64_t Amount::of(std::uint64_t all) const {
  // A share of a few million tokens times their number is below 2^53; what rounding adds is taken off again.
  const double part = std::ceil(share * static_cast<double>(all) * (1 - 1e-12));
  const std::uint64_t asked = whole > 0 ? whole : static_cast<std::uint64_t>(part);
  return std::min(all, std::max<std::uint64_t>(asked, 1));
}

bool ParamValues::has(std::string_view name) const {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
}

std::uint64_t ParamValues::count(std::string_view name) const {
  return find(name, ParamType::count).whole;
}

double ParamValues::real(std::string_view name) const {
  return find(name, ParamType::real).number;
}

double ParamValues::share(std::string_view name) const {
  return find(name, ParamType::share).number;
}

Amount ParamValues::amount(std::string_view name) const {
  const Entry& entry = find(name, ParamType::amount);
  return {entry.whole, entry.whole > 0 ? 0 : entry.number};
}

bool ParamValues::flag(std::string_view name) const {
  return find(name, ParamType::flag).number != 0;
}

const std::string& ParamValues::word(std::string_view name) const {
  for (const ParamType type : {ParamType::choice, ParamType::pool, ParamType::word})
    if (find(name).type == type) return find(name).text;
  return find(name, ParamType::text).text;
}

bool ParamValues::is(std::string_view name, std::string_view choice) const {
  return find(name).text == choice;
}

std::vector<std::uint64_t> ParamValues::counts(std::string_view name) const {
  std::vector<std::uint64_t> out;
  for (const Entry& item : find(name, ParamType::counts).items) out.push_back(item.whole);
  return out;
}

std::vector<double> ParamValues::shares(std::string_view name) const {
  std::vector<double> out;
  for (const Entry& item : find(name, ParamType::shares).items) out.push_back(item.number);
  return out;
}

std::vector<std::string> ParamValues::texts(std::string_view name) const {
  std::vector<std::string> out;
  for (const Entry& item : find(name, ParamType::texts).items) out.push_back(item.text);
  return out;
}

std::string ParamValues::text() const {
  std::string out;
  for (const Entry& entry : entries) out += (out.empty() ? "" : ",") + entry.name + "=" + entry.text;
  return out;
}

std::vector<std::string> param_names(const std::vector<ParamSpec>& specs) {
  std::vector<std::string> out;
  for (const ParamSpec& spec : specs) out.push_back(spec.name);
  return out;
}

}  // namespace kvsim
