#pragma once
/// HTML as text, written so that it cannot come out broken: text is escaped, elements close themselves.
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// `text` as it stands between tags or inside a quoted attribute: & < > " ' as entities, and what is no
/// character of HTML (controls, bytes that are not UTF-8) as U+FFFD.
std::string html_escaped(std::string_view text);

std::string base64(std::string_view bytes);

/// "'sha256-...'": the script or style `content`, as a Content-Security-Policy allows it and no other.
std::string allowed_content(std::string_view content);

class Html {
 public:
  using Attributes = std::vector<std::pair<std::string_view, std::string>>;

  /// Open as long as it lives.
  class Element {
   public:
    Element(Html& html, std::string_view name) : html_(&html), name_(name) {}
    Element(Element&& other) noexcept
        : html_(std::exchange(other.html_, nullptr)), name_(std::move(other.name_)) {}
    Element& operator=(Element&&) = delete;
    ~Element() {
      if (html_ != nullptr) html_->out_.append("</").append(name_).append(">");
    }

   private:
    Html* html_;
    std::string name_;
  };

  [[nodiscard]] Element element(std::string_view name, const Attributes& attributes = {});
  /// An element with text, closed again.
  void leaf(std::string_view name, std::string_view text, const Attributes& attributes = {});
  /// An element that has no end: img, meta, input.
  void empty(std::string_view name, const Attributes& attributes);
  void text(std::string_view text) { out_ += html_escaped(text); }
  /// Words in `backquotes` become code.
  void prose(std::string_view text);
  /// An element that a script fills.
  void empty_element(std::string_view name, const Attributes& attributes) { leaf(name, "", attributes); }
  /// For text of our own that is HTML, a style sheet or a script.
  void verbatim(std::string_view text) { out_ += text; }
  void new_line() { out_ += '\n'; }

  std::string take() && { return std::move(out_); }

 private:
  void start(std::string_view name, const Attributes& attributes);

  std::string out_;
};

/// Tables of a page: sorted by a click or a key, scrolled on a narrow screen, plain tables without script.
struct SortableTable {
  struct Column {
    std::string title{};
    std::string explained{};  ///< shown on hovering; may be empty
    bool numeric = false;
  };
  struct Cell {
    std::string shown{};
    std::string order{};  ///< exact number to sort by; empty: by what is shown
    std::string small{};  ///< second line: an interval
    bool marked = false;  ///< the best of its column
  };
  std::string caption{};  ///< names in `backquotes`
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};  ///< one cell per column; the first names the row
};

void write_table(Html& html, const SortableTable& table);

/// Any records, numbers rounded for people: at most `most_rows` of them. The caption says when that is less.
SortableTable table_of(const Records& records, const std::string& caption, std::size_t most_rows);

/// What pages of HTML share: one file that fetches nothing, whose style and script sort its tables, turn its
/// theme and draw its figures.
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
