#pragma once
/// HTML as text, written so that it cannot come out broken: text is escaped, elements close themselves.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace kvsim::analysis
