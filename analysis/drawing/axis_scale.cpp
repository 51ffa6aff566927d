#include "analysis/drawing/axis_scale.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "analysis/drawing/figure.hpp"

namespace kvsim::analysis {
namespace {

/// 12.5 for 12.50, and never "-0".
std::string plain_text(double value, int decimals) {
  char text[400];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, std::max(decimals, 0)).ptr;
  std::string out(text, end);
  if (out.find('.') != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

/// Decimals that tell numbers apart which lie `step` from each other.
int decimals_of(double step) {
  return static_cast<int>(std::ceil(-std::log10(step) - 1e-9)) + 1;
}

Tick tick(double at, double step, bool percent) {
  const double shown = percent ? at * 100 : at;
  const double shown_step = percent ? step * 100 : step;
  const bool tiny = shown_step < 1e-5 || std::fabs(shown) >= 1e7;
  char text[64];
  std::string label;
  if (tiny && shown != 0) {
    label.assign(text, std::to_chars(text, text + sizeof text, shown, std::chars_format::scientific, 1).ptr);
  } else {
    label = plain_text(shown, decimals_of(shown_step));
  }
  return {at, label + (percent ? "%" : "")};
}

/// 1, 2, 2.5 or 5 times a power of ten, for about `count` steps in `span`.
double nice_step(double span, std::size_t count) {
  const double raw = span / static_cast<double>(std::max<std::size_t>(count, 1));
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<Tick> linear_ticks(double low, double high, std::size_t count, const Axis& axis) {
  const bool percent = axis.percent;
  double step = nice_step(high - low, count);
  if (axis.whole) step = step <= 1 ? 1 : step == 2.5 ? 5 : step;
  std::vector<Tick> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push_back(tick(i * step, step, percent));
  constexpr std::size_t kMost = 16;
  return ticks.size() < 2 && !axis.whole && count < kMost ? linear_ticks(low, high, count + 1, axis) : ticks;
}

/// Powers of ten; with 2 and 5 times them while they are few; equal steps when the range is narrow.
std::vector<Tick> log_ticks(double low, double high, std::size_t count, const Axis& axis) {
  const double decades = std::log10(high / low);
  if (decades < 0.7) return linear_ticks(low, high, count, axis);
  const double stride = std::max(1.0, std::ceil(decades / static_cast<double>(count)));
  const bool finer = decades * 3 <= static_cast<double>(count);
  std::vector<Tick> ticks;
  for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = factor * std::pow(10.0, power);
      if (at < low * (1 - 1e-9) || at > high * (1 + 1e-9) || (factor > 1 && !finer)) continue;
      ticks.push_back(tick(at, at, axis.percent));
    }
  }
  // One tick is no scale: those that were left out are taken in.
  if (ticks.size() >= 2) return ticks;
  return finer ? linear_ticks(low, high, count + 1, axis) : log_ticks(low, high, 3 * count, axis);
}

/// The values themselves, without those nearer to the one before than a share of the axis.
std::vector<Tick> value_ticks(const std::vector<double>& values, const Scale& scale, double share,
                              bool percent) {
  const auto place = [&](double value) { return scale.log ? std::log(value) : value; };
  std::vector<Tick> ticks;
  for (const double value : values) {
    if (!ticks.empty() &&
        place(value) - place(ticks.back().at) < share * (place(scale.high) - place(scale.low)))
      continue;
    ticks.push_back(tick(value, value / 100, percent));
  }
  return ticks;
}

}  // namespace

std::size_t Scale::label_length() const {
  std::size_t longest = 0;
  // A percent sign is nearly as wide as two digits.
  for (const Tick& each : ticks)
    longest = std::max(longest, characters(each.label) + (each.label.ends_with('%') ? 1 : 0));
  return longest;
}

Scale number_scale(const Axis& axis, std::vector<double> values, std::size_t count, bool padded) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (axis.line) values.push_back(*axis.line);
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  Scale scale;
  if (values.empty()) values = {0, 1};
  double low = axis.low.value_or(values.front());
  double high = axis.high.value_or(values.back());
  scale.log = axis.log && low > 0;
  if (!(low < high)) {  // one value: in the middle
    const double room = low == 0 ? 1 : std::fabs(low) / 2;
    if (scale.log) low /= 2;
    if (!scale.log && !axis.low) low -= room;
    high = low + 2 * room;
  }
  if (scale.log) {
    const double room = padded ? std::pow(high / low, 0.04) : 1;
    scale.low = axis.low ? low : low / room;
    scale.high = axis.high ? high : high * room;
  } else {
    // Shares and losses are read against zero where that costs little of the room.
    if (!axis.low && padded && low > 0 && low < 0.4 * high) low = 0;
    const double room = padded ? (high - low) * 0.04 : 0;
    // A curve at zero keeps off the axis.
    const bool snapped = low == 0 && values.front() > 0;
    scale.low = axis.low || snapped ? low : low - room;
    scale.high = axis.high ? high : high + room;
  }
  constexpr double kReadable = 0.06;
  if (axis.ticks.size() >= 2 || (scale.log && !axis.ticks.empty())) {
    constexpr double kShort = 0.65;  // of the room for a label of any number
    scale.ticks = value_ticks(axis.ticks, scale, kShort / static_cast<double>(count + 1), axis.percent);
  } else if (scale.log && values.size() >= 2 && values.size() <= count + 1) {
    scale.ticks = value_ticks(values, scale, kReadable, axis.percent);
  } else if (scale.log && axis.at_values) {
    scale.ticks = value_ticks(values, scale, 1 / static_cast<double>(count + 1), axis.percent);
  } else if (scale.log) {
    scale.ticks = log_ticks(scale.low, scale.high, count, axis);
  } else {
    scale.ticks = linear_ticks(scale.low, scale.high, count, axis);
  }
  return scale;
}

Scale category_scale(const Axis& axis, std::size_t room, std::size_t longest_label) {
  Scale scale;
  const std::size_t count = axis.categories.size();
  scale.low = -0.5;
  scale.high = static_cast<double>(count) - 0.5;
  const std::size_t stride = (count + std::max<std::size_t>(room, 1) - 1) / std::max<std::size_t>(room, 1);
  for (std::size_t i = 0; i < count; i += std::max<std::size_t>(stride, 1))
    scale.ticks.push_back({static_cast<double>(i), shortened(one_line(axis.categories[i]), longest_label)});
  return scale;
}

}  // namespace kvsim::analysis
