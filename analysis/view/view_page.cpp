#include "analysis/view/view_page.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "analysis/report/html.hpp"
#include "analysis/view/view_assets.hpp"
#include "sim/base/gzip.hpp"

namespace kvsim::analysis {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      bits = bits << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
    for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[bits >> shift & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) out[out.size() - 1 - i] = '=';
  return out;
}

}  // namespace

std::string view_page(const std::string& packed, const std::string& title) {
  // What a trace holds is compressed data to this page until its own script makes text of it, and nothing
  // else runs or is fetched.
  const std::array<std::pair<std::string_view, std::string>, 5> parts{
      {{"{{policy}}",
        html_escaped("default-src 'none'; style-src " + allowed_content(view_style()) + "; script-src " +
                     allowed_content(view_script()) + "; base-uri 'none'; form-action 'none'")},
       {"{{title}}", html_escaped(title)},
       {"{{style}}", std::string(view_style())},
       {"{{data}}", base64(gzipped(packed))},
       {"{{script}}", std::string(view_script())}}};
  std::string out;
  std::string_view rest = view_body();
  for (const auto& [mark, text] : parts) {  // in the order in which the page has them
    const std::size_t at = rest.find(mark);
    out.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return out.append(rest);
}

}  // namespace kvsim::analysis
