#include "analysis/report/html.hpp"

#include <algorithm>

#include "analysis/results/utf8.hpp"
#include "sim/base/sha256.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
}

std::string_view escape(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || is_control(text[0])) {
      out += kReplacement;
    } else if (const std::string_view entity = escape(text[0]); !entity.empty()) {
      out += entity;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

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

std::string allowed_content(std::string_view content) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Sha256 sum;
  sum.update(content.data(), content.size());
  // Base64: three hexadecimal digits are two of it. 64 are 42 and two thirds, which = fills.
  const std::string hex = sum.hex() + "00";
  std::string out;
  for (std::size_t at = 0; at < hex.size(); at += 3) {
    const unsigned long bits = std::stoul(hex.substr(at, 3), nullptr, 16);
    out += {kDigits[bits >> 6], kDigits[bits & 63]};
  }
  out.back() = '=';
  return "'sha256-" + out + "'";
}

Html::Element Html::element(std::string_view name, const Attributes& attributes) {
  start(name, attributes);
  return {*this, name};
}

void Html::leaf(std::string_view name, std::string_view text, const Attributes& attributes) {
  const Element opened = element(name, attributes);
  out_ += html_escaped(text);
}

void Html::empty(std::string_view name, const Attributes& attributes) {
  start(name, attributes);
}

void Html::prose(std::string_view text) {
  bool code = false;
  for (std::size_t at = 0; at <= text.size(); code = !code) {
    const std::size_t end = std::min(text.find('`', at), text.size());
    if (code)
      leaf("code", text.substr(at, end - at));
    else
      out_ += html_escaped(text.substr(at, end - at));
    at = end + 1;
  }
}

void Html::start(std::string_view name, const Attributes& attributes) {
  out_.append("<").append(name);
  for (const auto& [key, value] : attributes)
    out_.append(" ").append(key).append("=\"").append(html_escaped(value)).append("\"");
  out_ += '>';
}

}  // namespace kvsim::analysis
