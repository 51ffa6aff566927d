// Damages every kind of untrusted file that capture reads, at random: each input is either accepted or
// refused with Error(input), and an accepted input satisfies its invariants. The damage is seeded, so that a
// failure can be repeated.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "sim/base/read_file.hpp"
#include "sim/base/rng.hpp"
#include "tests/support/mutation.hpp"
#include "traces/capture/token_file.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/safetensors.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::capture {
namespace {

using namespace kvsim::fuzz;

const std::string kGolden = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/capture/";

}  // namespace

TEST_CASE("fuzz: safetensors") {
  const std::string sound = read_file(kGolden + "llama_attention_bias/model.safetensors", 1 << 20);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, sound.data(), 8);
  const std::string header = sound.substr(8, header_bytes), data = sound.substr(8 + header_bytes);
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Dice dice(combine({1, seed}));
    std::string file;
    if (dice.below(4) == 0) {  // damages the whole file, mostly its length field
      file = sound;
      file[dice.below(dice.below(2) == 0 ? 8 : 8 + header_bytes)] = static_cast<char>(dice.below(256));
      file.resize(file.size() - dice.below(3));
    } else {  // damages a header of correct length
      const std::string text = mutate(header, dice);
      const std::uint64_t length = text.size();
      file.resize(8);
      std::memcpy(file.data(), &length, 8);
      file += text + data;
    }
    // A copy of exact size lets a sanitizer detect a read of the first byte past it.
    const std::vector<std::byte> exact(reinterpret_cast<const std::byte*>(file.data()),
                                       reinterpret_cast<const std::byte*>(file.data()) + file.size());
    INFO("seed " << seed);
    accepted += accepts([&] {
      std::uint64_t covered = 0;
      for (const auto& [name, tensor] : model::parse_safetensors(exact, "fuzz")) {
        REQUIRE(tensor.data.data() >= exact.data());
        REQUIRE(tensor.data.data() + tensor.data.size() <= exact.data() + exact.size());
        covered += tensor.data.size();
        std::vector<float> values;
        accepts([&] {
          const Elem elem = model::tensor_elem(tensor, name);
          REQUIRE(tensor.elements() * elem_bytes(elem) == tensor.data.size());
          values.resize(tensor.elements());
          widen(elem, tensor.data.data(), values.size(), values.data());
        });
      }
      std::uint64_t length = 0;
      std::memcpy(&length, exact.data(), 8);
      REQUIRE(covered + 8 + length == exact.size());
    });
  }
  CHECK(accepted > 10);
  CHECK(accepted < 5000);
}

TEST_CASE("fuzz: config.json") {
  int accepted = 0;
  for (const char* variant :
       {"llama_rope_llama3", "llama_rope_linear", "llama_rope_yarn", "phi3_partial_rotary",
        "phi3_longrope_long", "qwen2_mixed_windows", "qwen3_qk_norm"}) {
    const model::Checkpoint checkpoint(kGolden + variant);
    const std::string sound = read_file(kGolden + variant + "/config.json", 1 << 16);
    for (std::uint64_t seed = 0; seed < 1500; ++seed) {
      Dice dice(combine({2, seed}));
      const std::string text = mutate(sound, dice);
      INFO(variant << " seed " << seed << ": " << text);
      accepted += accepts([&] {
        const model::ModelConfig config = model::parse_model_config(text, "fuzz");
        REQUIRE(config.n_heads % config.n_kv_heads == 0);
        REQUIRE(config.layer_window.size() == config.n_layers);
        for (const float f : model::rope_frequencies(config.rope, seed)) REQUIRE((f >= 0 && f <= 1000));
        for (const std::int32_t id : config.eos)
          REQUIRE((id >= 0 && static_cast<std::uint32_t>(id) < config.vocab_size));
        accepts([&] {  // the tensors of an accepted file lie within the file
          for (const model::LayerWeights& layer : model::load_weights(checkpoint, config).layers) {
            for (const model::Linear* part : {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up}) {
              std::vector<float> row;
              REQUIRE(std::isfinite(part->rows(part->out - 1, 1, row)[part->in - 1]));
            }
          }
        });
      });
    }
  }
  CHECK(accepted > 100);
  CHECK(accepted < 9000);
}

TEST_CASE("fuzz: tokenizer.json") {
  // The vocabulary is small, so that edits hit every part.
  const std::string sound =
      R"({"added_tokens":[{"id":9,"content":"<s>","lstrip":true,"rstrip":false,"normalized":false,"special":true}],)"
      R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
      R"({"Regex":"\\s+(?!\\S)|\\p{L}+| ?[^\\s\\p{L}]+|\\s+"},"behavior":"Isolated","invert":false},{"type":"Digits",)"
      R"("individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]},"post_processor":)"
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
      R"("special_tokens":{"<s>":{"ids":[9]}}},"model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"c":2,)"
      R"("\u0120":3,"ab":4,"abc":5,"\u0120a":6,"1":7,"\u00c3":8},"merges":[["a","b"],"ab c",["\u0120","a"]]}})";
  const std::vector<std::string> texts{"abc a b1<s>  ", "\u00e3ab", "", "aaaa  bbbb", "c\xff"};
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    Dice dice(combine({3, seed}));
    const std::string text = mutate(sound, dice);
    INFO("seed " << seed << ": " << text);
    accepted += accepts([&] {
      const model::Tokenizer tokenizer = model::parse_tokenizer_json(text, "fuzz");
      for (const std::string& prompt : texts) {
        accepts([&] {
          for (const std::int32_t id : tokenizer.encode(prompt)) {
            REQUIRE(id >= 0);
            tokenizer.bytes(id);
          }
        });
      }
    });
  }
  CHECK(accepted > 100);
  CHECK(accepted < 7500);
}

TEST_CASE("fuzz: token files") {
  int accepted = 0;
  for (const std::string sound : {"[0, 1, 256, 255]", "0 1 256\n255\t7", "[]"}) {
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
      Dice dice(combine({4, seed}));
      const std::string text = damage(sound, dice);
      INFO("seed " << seed << ": " << text);
      accepted += accepts([&] {
        for (const std::int32_t id : parse_token_ids(text, 257, "fuzz")) REQUIRE((id >= 0 && id < 257));
      });
    }
  }
  CHECK(accepted > 100);
}

TEST_CASE("fuzz: a tokenizer's tokens spell the text") {
  const model::Tokenizer tokenizer = model::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  const std::string sound =
      "The answer is 42, n'est-ce pas ? \u6771\u4eac  \n\t<s> </s> e\u0301 \U0001f600 x=[1,2];";
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Dice dice(combine({5, seed}));
    const std::string text = damage(sound, dice);
    INFO("seed " << seed);
    accepted += accepts([&] {
      std::string joined;
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      for (std::size_t i = 1; i < ids.size(); ++i) joined += tokenizer.bytes(ids[i]);  // the first is <s>
      REQUIRE(joined == text);
    });
  }
  CHECK(accepted > 400);
}

}  // namespace kvsim::capture
