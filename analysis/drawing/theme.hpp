#pragma once
/// Colours of figures. The qualitative ones follow Okabe and Ito, "Color Universal Design" (2008), moved
/// until each stands out from its background (contrast of at least 3 to 1) and from its neighbours for every
/// kind of colour vision; curves differ in markers and dashes too, so that they read without colour. The
/// sequential map is viridis (van der Walt and Smith 2015): evenly spaced to the eye, in order without
/// colour.
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvsim::analysis {

enum class Theme { light, dark };
/// "light" or "dark".
const char* theme_name(Theme theme);
/// Throws Error(usage) with the nearest names.
Theme parse_theme(std::string_view name);

using Rgb = std::uint32_t;  ///< 0xRRGGBB

struct Palette {
  Rgb paper, ink, soft, grid;  ///< background, text, lesser text and axes, grid
  Rgb faint;                   ///< curves that stay in the background
  std::array<Rgb, 8> series;
  std::vector<Rgb> sequential, diverging;  ///< evenly spaced stops, low to high
};

const Palette& palette_of(Theme theme);

/// The colour at `share` (0..1) of stops, linear between them.
Rgb blend(const std::vector<Rgb>& stops, double share);
/// WCAG 2 relative luminance, 0 black to 1 white.
double luminance(Rgb colour);
/// WCAG 2 contrast of two colours, 1 to 21.
double contrast(Rgb a, Rgb b);

}  // namespace kvsim::analysis
