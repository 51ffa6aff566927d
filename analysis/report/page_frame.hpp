#pragma once
/// What pages of HTML share: one file that fetches nothing, whose style and script sort its tables, turn its
/// theme and draw its figures.
#include <functional>
#include <string>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/html.hpp"

namespace kvsim::analysis {

struct PageFrame {
  std::string title, words;  ///< its heading, and a line below
  std::string notice{};      ///< what readers must know first; empty: nothing
  std::string data;          ///< what the script draws from (live_data.hpp), as JSON
};

/// The whole page; `main` writes what stands between. The same content gives the same bytes.
std::string framed_page(const PageFrame& frame, const std::function<void(Html&)>& main);

/// What a reader may ask; the answer, folded under it, is what is written as long as the element lives.
Html::Element asked(Html& html, const std::string& id, const std::string& question);
/// Folded, with a line that says what is inside.
Html::Element folded(Html& html, const std::string& summary);
/// Words in `backquotes` become code.
void paragraph(Html& html, const std::string& text);
/// A figure that the script draws when it is unfolded, open from the start or not, and its words; open as
/// long as the element lives.
Html::Element figure_element(Html& html, const Figure& figure, bool open);

}  // namespace kvsim::analysis
