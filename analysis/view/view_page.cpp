#include "analysis/view/view_page.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "analysis/report/html.hpp"
#include "analysis/view/view_assets.hpp"
#include "sim/base/gzip.hpp"

namespace kvsim::analysis {
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
