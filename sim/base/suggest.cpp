#include "sim/base/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace kvsim {
namespace {

constexpr std::ptrdiff_t kMostListed = 24;  ///< names in a message

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string join(const std::vector<std::string>& names, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? last : std::string_view(", ");
    out += names[i];
  }
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view a_text, std::string_view b_text) {
  const std::string a = lower(a_text), b = lower(b_text);
  // Rows of the table of distances between beginnings: of i letters of a, and of one and two fewer.
  std::vector<std::size_t> row(b.size() + 1), before, two_before;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_before = std::move(before);
    before = std::move(row);
    row.assign(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known,
                                 std::size_t count) {
  const std::string wanted = lower(name);
  const std::size_t farthest = std::max<std::size_t>(2, wanted.size() / 2);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    const std::string other = lower(candidate);
    const bool contains =
        wanted.size() >= 3 && other.size() >= 3 &&
        (other.find(wanted) != std::string::npos || wanted.find(other) != std::string::npos);
    // Texts are at least as far apart as their lengths.
    const std::size_t apart = std::max(wanted.size(), other.size()) - std::min(wanted.size(), other.size());
    if (!contains && apart > farthest) continue;
    const std::size_t distance = contains ? std::min<std::size_t>(apart, 2) : edit_distance(wanted, other);
    if (distance <= farthest) ranked.emplace_back(distance, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> out;
  for (const auto& [distance, candidate] : ranked) {
    if (out.size() == count) break;
    out.push_back(candidate);
  }
  return out;
}

std::optional<std::string> spelled(std::string_view typed, const std::vector<std::string>& known,
                                   std::string_view ending) {
  std::optional<std::string> found;
  std::string wanted = plain_name(typed);
  for (const bool shortened : {false, true}) {
    if (shortened && (found || ending.empty() || !wanted.ends_with(ending))) break;
    if (shortened) wanted.resize(wanted.size() - ending.size());
    for (const std::string& name : known) {
      if (name == typed) return name;
      if (plain_name(name) != wanted) continue;
      if (found && *found != name) return {};
      found = name;
    }
  }
  return found;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return {};
  const std::vector<std::string> near = nearest(name, known);
  if (near.empty() && known.size() > kMostListed)
    return "Known: " + join({known.begin(), known.begin() + kMostListed}, ", ") + " and " +
           std::to_string(known.size() - kMostListed) + " more.";
  if (near.empty()) return "Known: " + join(known, ", ") + '.';
  return "Did you mean " + join(near, " or ") + "?";
}

}  // namespace kvsim
