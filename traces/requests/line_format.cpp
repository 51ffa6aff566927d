#include "traces/requests/line_format.hpp"

#include <chrono>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::requests {

std::optional<double> seconds_of(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  if (text.ends_with('Z')) text.remove_suffix(1);
  if (text.size() < kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i] && !(i == 10 && text[i] == 'T')) return std::nullopt;
  }
  const auto part = [&](std::size_t at, std::size_t digits) {
    return *number_of<unsigned>(text.substr(at, digits));
  };
  using std::chrono::day, std::chrono::month, std::chrono::sys_days, std::chrono::year;
  const std::chrono::year_month_day date{year(static_cast<int>(part(0, 4))), month(part(5, 2)),
                                         day(part(8, 2))};
  if (!date.ok() || part(11, 2) > 23 || part(14, 2) > 59 || part(17, 2) > 60) return std::nullopt;
  double fraction = 0;
  if (text.size() > kForm.size()) {
    const auto parsed = number_of<double>("0" + std::string(text.substr(kForm.size())));
    if (text.size() == kForm.size() + 1 || text[kForm.size()] != '.' || !parsed || *parsed >= 1)
      return std::nullopt;
    fraction = *parsed;
  }
  const auto days = static_cast<double>(sys_days(date).time_since_epoch().count());
  return days * 86400 + part(11, 2) * 3600 + part(14, 2) * 60 + part(17, 2) + fraction;
}

double seconds_at(std::string_view text, std::string_view field, const std::string& where) {
  std::optional<double> seconds = number_of<double>(text);
  if (!seconds) seconds = seconds_of(text);
  if (!seconds)
    input_error(std::string(field) + " is " + in_quotes(text) +
                    ", neither seconds nor a time like 2024-05-10 00:00:00.009930",
                where);
  return *seconds;
}

}  // namespace kvsim::requests
