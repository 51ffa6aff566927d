// Compares with what the package gguf of PyPI makes of the same blocks (tests/golden/gguf/make_types.py).
#include <catch2/catch.hpp>
#include <cstring>

#include "traces/model/gguf_blocks.hpp"

namespace kvsim::model::test_gguf_blocks {
namespace {

const std::string kGolden = KVSIM_SOURCE_DIR "/tests/golden/gguf/types.gguf";

}  // namespace

TEST_CASE("blocks of every GGUF type widen to the package's floats, bit for bit, from any alignment") {
  const GgufFile golden(kGolden);
  for (const char* name :
       {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"}) {
    INFO(name);
    const GgufTensor& tensor = golden.content.tensor(name);
    const GgufTensor& wanted = golden.content.tensor(std::string(name) + ".values");
    REQUIRE(tensor.type->name == name);
    REQUIRE(can_widen(*tensor.type));
    REQUIRE(tensor.shape == std::vector<std::uint64_t>{2, 512});
    REQUIRE(wanted.shape == tensor.shape);
    for (const std::size_t shift : {0U, 1U}) {
      std::vector<std::byte> bytes(tensor.data.size() + shift);
      std::memcpy(bytes.data() + shift, tensor.data.data(), tensor.data.size());
      std::vector<std::uint32_t> floats(tensor.elements()), expected(tensor.elements());
      widen_blocks(*tensor.type, bytes.data() + shift, tensor.elements() / tensor.type->items,
                   reinterpret_cast<float*>(floats.data()));
      std::memcpy(expected.data(), wanted.data.data(), wanted.data.size());
      CHECK(floats == expected);
    }
  }
}

TEST_CASE("a block of Q4_K, worked by hand") {
  // Group 5 (the second of the third pair): scale 0.5, factor 0b10'0011 = 35 of the low half of byte 9 and
  // the top of byte 1; minimum 2, factor 0b01'0110 = 22 of the high half of byte 9 and the top of byte 5.
  std::vector<std::uint8_t> block(144, 0);
  block[1] = 0x38;                // 0.5
  block[3] = 0x40;                // 2
  block[4 + 1] = 0b10'000000;     // top bits of the scale of group 5
  block[4 + 5] = 0b01'000000;     // top bits of its minimum
  block[4 + 9] = 0b0110'0011;     // their low bits
  block[16 + 2 * 32 + 7] = 0xd4;  // number 7 of groups 4 and 5: 4 and 13
  const GgufType type{12, "Q4_K", 256, 144};
  std::vector<float> floats(256);
  widen_blocks(type, reinterpret_cast<const std::byte*>(block.data()), 1, floats.data());
  CHECK(floats[5 * 32 + 7] == 0.5F * 35 * 13 - 2.0F * 22);
  CHECK(floats[5 * 32 + 6] == -44);
  CHECK(floats[4 * 32 + 7] == 0);
}

TEST_CASE("types that cannot be widened are told") {
  CHECK_FALSE(can_widen({10, "Q2_K", 256, 84}));
  CHECK_FALSE(can_widen({26, "I32", 1, 4}));
}

TEST_CASE("metadata that the package wrote") {
  const GgufFile golden(kGolden);
  const Gguf& content = golden.content;
  CHECK(content.version() == 3);
  CHECK(content.text("general.architecture") == "none");
  CHECK(content.integer("uint8") == 200);
  CHECK(content.integer("uint16") == 60'000);
  CHECK(content.integer("uint32") == 4'000'000'000);
  CHECK(content.integer("uint64") == 1ULL << 62);
  for (const char* negative : {"int8", "int16", "int32", "int64"}) CHECK_THROWS(content.integer(negative));
  CHECK(content.number("float32") == 1e-5);
  CHECK(content.number("float64") == 0.1);
  CHECK(content.flag("bool"));
  CHECK(content.text("string") == "na\u00efve\n");
  CHECK(content.texts("texts") == std::vector<std::string_view>{"", "na\u00efve", "z"});
  CHECK(content.integers("integers") == std::vector<std::int64_t>{-1, 2, 70'000});
  CHECK(content.numbers("floats") == std::vector<double>{0.5, -2.0});
}

}  // namespace kvsim::model::test_gguf_blocks
