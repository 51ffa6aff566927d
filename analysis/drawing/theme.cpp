#include "analysis/drawing/theme.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

const std::vector<Rgb> kViridis = {0x440154, 0x472d7b, 0x3b528b, 0x2c728e, 0x21918c,
                                   0x28ae80, 0x5ec962, 0xaddc30, 0xfde725};

double channel(Rgb colour, unsigned shift) {
  return static_cast<double>((colour >> shift) & 0xff);
}

}  // namespace

const char* theme_name(Theme theme) {
  return theme == Theme::light ? "light" : "dark";
}

Theme parse_theme(std::string_view name) {
  if (name == "light") return Theme::light;
  if (name == "dark") return Theme::dark;
  usage_error("unknown theme '" + std::string(name) + "'", "--theme", suggestion(name, {"light", "dark"}));
}

const Palette& palette_of(Theme theme) {
  static const Palette kLight{
      .paper = 0xffffff,
      .ink = 0x1b1f24,
      .soft = 0x57606a,
      .grid = 0xe4e7eb,
      .faint = 0xb4bac2,
      .series = {0x0072b2, 0xd55e00, 0x008a66, 0xb0569a, 0x8f6a00, 0x2f9bd8, 0x5b4a9c, 0x8c1d2f},
      .sequential = kViridis,
      .diverging = {0x1f5f9f, 0x5b9bcb, 0xb7d5ea, 0xf4f4f2, 0xf6c9a5, 0xdf8244, 0xa84300}};
  static const Palette kDark{
      .paper = 0x14181d,
      .ink = 0xe8ebef,
      .soft = 0xa3acb8,
      .grid = 0x2b323b,
      .faint = 0x59626e,
      .series = {0x56b4e9, 0xff8a3d, 0x2cc197, 0xe08cc6, 0xe6c229, 0xa8dcff, 0xa796f0, 0xf2616f},
      .sequential = kViridis,
      .diverging = {0x9ccdf5, 0x4a95d0, 0x285780, 0x262b31, 0x7d4719, 0xd37a33, 0xffc08a}};
  return theme == Theme::light ? kLight : kDark;
}

Rgb blend(const std::vector<Rgb>& stops, double share) {
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(stops.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(at), stops.size() - 2);
  const double part = at - static_cast<double>(below);
  Rgb out = 0;
  for (const unsigned shift : {16U, 8U, 0U}) {
    const double mixed = channel(stops[below], shift) * (1 - part) + channel(stops[below + 1], shift) * part;
    out |= static_cast<Rgb>(std::lround(mixed)) << shift;
  }
  return out;
}

double luminance(Rgb colour) {
  const auto linear = [&](unsigned shift) {
    const double c = channel(colour, shift) / 255;
    return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
}

double contrast(Rgb a, Rgb b) {
  const double first = luminance(a), second = luminance(b);
  return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

}  // namespace kvsim::analysis
