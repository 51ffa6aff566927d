#include "traces/model/tokenizers/text_normalizer.hpp"

#include <array>
#include <utility>

#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::model {
namespace {

constexpr std::array<std::pair<const char*, NormalForm>, 4> kForms{{{"NFC", NormalForm::nfc},
                                                                    {"NFD", NormalForm::nfd},
                                                                    {"NFKC", NormalForm::nfkc},
                                                                    {"NFKD", NormalForm::nfkd}}};

}  // namespace

TextNormalizer::TextNormalizer(const JsonObject& json) {
  parse(json);
}

void TextNormalizer::parse(const JsonObject& json) {
  const std::string type = json.text("type");
  for (const auto& [name, form] : kForms) {
    if (type == name) return steps_.push_back({.kind = Kind::normal_form, .form = form});
  }
  if (type == "Lowercase") {
    steps_.push_back({.kind = Kind::lowercase});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .content = json.text("prepend")});
  } else if (type == "Replace") {
    steps_.push_back(
        {.kind = Kind::replace, .pattern = plain_pattern(json), .content = json.text("content")});
  } else if (type == "Sequence") {
    const boost::json::array& parts = json.array("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i)
      parse({parts[i], json.where() + "[" + std::to_string(i) + "]"});
  } else {
    not_supported("normalizer", type, json.where());
  }
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::normal_form:
        result = normalize(step.form, result);
        break;
      case Kind::lowercase:
        result = lowercase(result);
        break;
      case Kind::prepend:
        if (!result.empty()) result.insert(0, step.content);
        break;
      case Kind::replace:
        result = replace_all(result, step.pattern, step.content);
        break;
    }
    if (result.size() > kMaxRewrittenBytes)
      input_error("makes a text longer than " + bytes_text(kMaxRewrittenBytes), "normalizer");
  }
  return result;
}

}  // namespace kvsim::model
