#include "analysis/kinds/settings.hpp"

#include <sstream>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  std::string item;
  int depth = 0;  // a policy's own commas do not separate
  for (const char c : list) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth <= 0) {
      out.push_back(item);
      item.clear();
    } else {
      item += c;
    }
  }
  out.push_back(item);
  return out;
}

[[noreturn]] void refuse(std::string_view name, const std::string& value, const std::string& allowed) {
  usage_error("'" + value + "' is not " + allowed, "--" + std::string(name));
}

std::string range_text(double low, double high) {
  std::ostringstream text;
  text << " from " << low << " to " << high;
  return text.str();
}

std::uint64_t whole_of(std::string_view name, const std::string& text, std::uint64_t low,
                       std::uint64_t high) {
  const auto number = number_of<std::uint64_t>(text);
  if (!number || *number < low || *number > high)
    refuse(name, text, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return *number;
}

double share_of(std::string_view name, const std::string& text) {
  const bool percent = text.ends_with('%');
  const auto number = number_of<double>(percent ? std::string_view(text).substr(0, text.size() - 1) : text);
  const double share = number ? (percent ? *number / 100 : *number) : -1;
  if (!(share >= 0 && share <= 1)) refuse(name, text, "a share, such as 0.1 or 10%");
  return share;
}

}  // namespace

Settings::Settings(std::vector<Setting> declared) {
  for (Setting& setting : declared) {
    std::string value = setting.standard;
    entries_.push_back({std::move(setting), std::move(value)});
  }
}

void Settings::set(std::string_view name, std::string value) {
  std::vector<std::string> known;
  for (Entry& entry : entries_) {
    known.push_back(entry.setting.name);
    if (entry.setting.name != name) continue;
    entry.value = std::move(value);
    return;
  }
  usage_error("unknown setting '" + std::string(name) + "'", "", suggestion(name, known));
}

const std::string& Settings::text(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.setting.name == name) return entry.value;
  bug("no setting " + std::string(name));
}

std::uint64_t Settings::whole(std::string_view name, std::uint64_t low, std::uint64_t high) const {
  return whole_of(name, text(name), low, high);
}

double Settings::number(std::string_view name, double low, double high) const {
  const auto number = number_of<double>(text(name));
  if (!number || !(*number >= low && *number <= high))
    refuse(name, text(name), "a number" + range_text(low, high));
  return *number;
}

std::vector<std::string> Settings::texts(std::string_view name) const {
  std::vector<std::string> items = split(text(name));
  for (const std::string& item : items)
    if (item.empty()) refuse(name, text(name), "a list: an item is empty");
  return items;
}

std::vector<std::uint64_t> Settings::wholes(std::string_view name, std::uint64_t low,
                                            std::uint64_t high) const {
  std::vector<std::uint64_t> out;
  for (const std::string& item : texts(name)) out.push_back(whole_of(name, item, low, high));
  return out;
}

std::vector<double> Settings::shares(std::string_view name) const {
  std::vector<double> out;
  for (const std::string& item : texts(name)) out.push_back(share_of(name, item));
  return out;
}

}  // namespace kvsim::analysis
