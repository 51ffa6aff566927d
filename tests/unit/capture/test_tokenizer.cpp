#include <catch2/catch.hpp>

#include "traces/capture/byte_pair_encoder.hpp"
#include "traces/capture/input_file.hpp"
#include "traces/capture/strict_json.hpp"
#include "traces/capture/tokenizer.hpp"
#include "traces/capture/unicode_text.hpp"

namespace kvsim::capture {
namespace {

const boost::json::value& golden() {
  static const std::string path = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/capture/tokenizers.json";
  static const boost::json::value document = parse_strict_json(read_file(path, 1 << 20), path, 100'000);
  return document;
}

}  // namespace

TEST_CASE("ids agree with Hugging Face tokenizers", "[golden]") {
  const boost::json::array& texts = golden().at("texts").as_array();
  for (const boost::json::value& variant : golden().at("tokenizers").as_array()) {
    const std::string name(variant.at("name").as_string());
    const Tokenizer tokenizer(std::string(variant.at("tokenizer").as_string()), name);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts[i].as_string());
      std::vector<std::int32_t> expected;
      for (const boost::json::value& id : variant.at("ids").at(i).as_array())
        expected.push_back(static_cast<std::int32_t>(id.as_int64()));
      INFO(name << " on text " << i << ": " << text);
      CHECK(tokenizer.encode(text) == expected);
    }
  }
}

}  // namespace kvsim::capture
