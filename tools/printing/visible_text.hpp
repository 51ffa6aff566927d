#pragma once
/// The one place that everything goes through on its way to a terminal: names and texts come from files of
/// others, and a control character in one of them would move the cursor, hide lines or type commands.
#include <streambuf>
#include <string>
#include <string_view>

namespace kvsim::tools {

/// Passes text on, with control characters (but for line ends and tabs) as \x1b: those of ASCII, those that
/// UTF-8 writes as two bytes (U+0080 to U+009F), and single bytes that old terminals take for the same.
class VisibleText final : public std::streambuf {
 public:
  explicit VisibleText(std::streambuf& to) : to_(to) {}

 private:
  int_type overflow(int_type c) override;
  int sync() override { return to_.pubsync(); }

  std::streambuf& to_;
  bool held_ = false;  ///< 0xC2 has come, the first byte of what may be a control character
  int following_ = 0;  ///< bytes to come of a character
};

std::string visible(std::string_view text);

}  // namespace kvsim::tools
