#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>

#include "sim/base/error.hpp"
#include "tests/unit/model/gguf_bytes.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/gguf_file.hpp"

namespace kvsim::model::test_gguf_file {
namespace {

using namespace kvsim::test;
using Catch::Matchers::Contains;

Gguf parse(const std::string& file) {
  return Gguf(std::as_bytes(std::span(file)), "file");
}

template <class Call>
std::string complaint(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}
std::string problem(const std::string& file) {
  return complaint([&] { parse(file); });
}

}  // namespace

TEST_CASE("a GGUF file gives its values by their types") {
  const std::string file =
      gguf({entry("u8", 0, raw<std::uint8_t>(200)),
            entry("i8", 1, raw<std::int8_t>(-3)),
            entry("u16", 2, raw<std::uint16_t>(60'000)),
            entry("i16", 3, raw<std::int16_t>(7)),
            entry("u32", 4, raw<std::uint32_t>(4'000'000'000)),
            entry("i32", 5, raw<std::int32_t>(5)),
            entry("f32", 1e-5F),
            entry("yes", 7, raw<std::uint8_t>(1)),
            entry("no", 7, raw<std::uint8_t>(0)),
            entry("text", "a\nb"),
            entry("u64", 10, raw<std::uint64_t>(1ULL << 62)),
            entry("huge", 10, raw<std::uint64_t>(1ULL << 63)),
            entry("i64", 11, raw<std::int64_t>(9)),
            entry("f64", 12, raw(0.1)),
            entry("nan", std::numeric_limits<float>::quiet_NaN()),
            array("texts", {"", "xy", "z"}),
            array("none", std::vector<std::string>{}),
            array("integers", 5, 2, raw<std::int32_t>(-1) + raw<std::int32_t>(2)),
            array("numbers", 6, 2, raw(0.5F) + raw(-std::numeric_limits<float>::infinity())),
            array("flags", 7, 1, raw<std::uint8_t>(1))});
  for (const std::uint32_t version : {2U, 3U}) {
    std::string bytes = file;
    bytes.replace(4, 4, raw(version));
    const Gguf content = parse(bytes);
    CHECK(content.version() == version);
    CHECK(content.keys().size() == 20);
    CHECK(content.integer("u8") == 200);
    CHECK(content.integer("u16") == 60'000);
    CHECK(content.integer("i16") == 7);
    CHECK(content.integer("u32") == 4'000'000'000);
    CHECK(content.integer("i32") == 5);
    CHECK(content.integer("u64") == 1ULL << 62);
    CHECK(content.integer("i64") == 9);
    CHECK(content.number("f32") == 1e-5);  // not 9.99999974737875163555e-06
    CHECK(content.number("f64") == 0.1);
    CHECK(content.flag("yes"));
    CHECK_FALSE(content.flag("no"));
    CHECK(content.text("text") == "a\nb");
    CHECK(content.texts("texts") == std::vector<std::string_view>{"", "xy", "z"});
    CHECK(content.texts("none").empty());
    CHECK(content.integers("integers") == std::vector<std::int64_t>{-1, 2});
    CHECK(content.numbers("numbers") == std::vector<double>{0.5, -std::numeric_limits<double>::infinity()});
    CHECK(content.integer_or("absent", 3) == 3);
    CHECK(content.integer_or("u8", 3) == 200);
    CHECK(content.number_or("absent", 0.5) == 0.5);
    CHECK(content.flag_or("absent", true));
    CHECK(content.text_or("absent", "x") == "x");

    const auto of = [&](const auto& call) { return complaint([&] { call(content); }); };
    CHECK_THAT(of([](const Gguf& c) { c.integer("absent"); }), Contains("the key \"absent\" is missing"));
    CHECK_THAT(of([](const Gguf& c) { c.integer("i8"); }), Contains("file key \"i8\": is negative"));
    CHECK_THAT(of([](const Gguf& c) { c.integer("huge"); }), Contains("at most 63 bits"));
    CHECK_THAT(of([](const Gguf& c) { c.integer("f32"); }), Contains("of type float32, expected an integer"));
    CHECK_THAT(of([](const Gguf& c) { c.integer_or("yes", 1); }),
               Contains("of type bool, expected an integer"));
    CHECK_THAT(of([](const Gguf& c) { c.integer("integers"); }),
               Contains("an array of int32, expected an integer"));
    CHECK_THAT(of([](const Gguf& c) { c.number("nan"); }), Contains("is not finite"));
    CHECK_THAT(of([](const Gguf& c) { c.number("u8"); }), Contains("of type uint8, expected a float"));
    CHECK_THAT(of([](const Gguf& c) { c.flag("u8"); }), Contains("expected a bool"));
    CHECK_THAT(of([](const Gguf& c) { c.text("texts"); }), Contains("an array of text, expected a text"));
    CHECK_THAT(of([](const Gguf& c) { c.texts("text"); }),
               Contains("of type text, expected an array of texts"));
    CHECK_THAT(of([](const Gguf& c) { c.texts("integers"); }), Contains("expected an array of texts"));
    CHECK_THAT(of([](const Gguf& c) { c.integers("texts"); }), Contains("expected an array of integers"));
    CHECK_THAT(of([](const Gguf& c) { c.integers("flags"); }), Contains("expected an array of integers"));
    CHECK_THAT(of([](const Gguf& c) { c.numbers("integers"); }), Contains("expected an array of floats"));
  }
}

TEST_CASE("a GGUF file gives its tensors, row-major") {
  const std::string file =
      gguf({entry("general.alignment", 64U)},
           {place("b", {2, 3}, 0, 64), place("a", {64, 1}, 2, 0), place("scalar", {}, 1, 128)}, {});
  const std::string data = padded(std::string(36, 'a'), 64) + padded(std::string(24, 'b'), 64) + "xy";
  const std::string bytes = padded(file, 64) + data;  // which the tensors look into
  const Gguf content = parse(bytes);
  REQUIRE(content.tensors().size() == 3);
  const GgufTensor& a = content.tensor("a");
  CHECK(a.type->name == "Q4_0");
  CHECK(a.shape == std::vector<std::uint64_t>{1, 64});
  CHECK(a.elements() == 64);
  CHECK(a.data.size() == 36);
  CHECK(std::memcmp(a.data.data(), data.data(), 36) == 0);
  CHECK(content.tensor("b").shape == std::vector<std::uint64_t>{3, 2});
  CHECK(std::memcmp(content.tensor("b").data.data(), data.data() + 64, 24) == 0);
  CHECK(content.tensor("scalar").elements() == 1);
  CHECK_THAT(complaint([&] { content.tensor("c"); }), Contains("tensor \"c\" is missing"));
  // The last tensor may be padded, and nothing may follow.
  CHECK(problem(padded(padded(file, 64) + data, 64)) == "accepted");
  CHECK_THAT(problem(padded(padded(file, 64) + data, 64) + "."), Contains("1 foreign bytes"));
}

TEST_CASE("what is no GGUF file, and counts that are not in it") {
  CHECK_THAT(problem(""), Contains("not a GGUF file"));
  CHECK_THAT(problem("GGU"), Contains("not a GGUF file"));
  CHECK_THAT(problem("GGML" + std::string(100, '\0')), Contains("not a GGUF file"));
  CHECK_THAT(problem(gguf({}, {}, {}, 1)), Contains("GGUF version 1"));
  CHECK_THAT(problem(gguf({}, {}, {}, 4)), Contains("reads versions 2 and 3"));
  CHECK_THAT(problem(gguf({}, {}, {}, 0x03000000)), Contains("big-endian"));
  CHECK(problem(gguf({})) == "accepted");
  const std::string start = "GGUF" + raw<std::uint32_t>(3);
  for (const std::uint64_t count : {~0ULL, 1ULL << 63, 1ULL << 32}) {
    CHECK_THAT(problem(start + raw(count) + raw<std::uint64_t>(0)),
               Contains("announces") && Contains("tensors"));
    CHECK_THAT(problem(start + raw<std::uint64_t>(0) + raw(count)),
               Contains("announces") && Contains("keys"));
    CHECK_THAT(problem(gguf({array("k", 4, count, "1234")})), Contains("more than the file has room for"));
    CHECK_THAT(problem(gguf({array("k", 8, count, gguf_text("1234"))})), Contains("0 are left"));
    CHECK_THAT(problem(gguf({gguf_text("k") + raw<std::uint32_t>(8) + raw(count)})), Contains("0 are left"));
    CHECK_THAT(problem(gguf({raw(count)})), Contains("0 are left"));
  }
}

TEST_CASE("a GGUF file that is cut short anywhere is refused") {
  const std::string file =
      gguf({entry("a", "text"), array("b", {"x", "y"}), array("c", 4, 2, raw(1) + raw(2))},
           {place("t", {32}, 8, 0)}, std::string(34, 'x'));
  REQUIRE(problem(file) == "accepted");
  for (std::size_t n = 0; n < file.size(); ++n) {
    INFO(n);
    CHECK(problem(file.substr(0, n)) != "accepted");
  }
}

TEST_CASE("keys and values that the format does not allow") {
  CHECK_THAT(problem(gguf({entry("a", 1U), entry("a", "x")})), Contains("key \"a\" occurs twice"));
  CHECK_THAT(problem(gguf({entry("", 1U)})), Contains("0 bytes long"));
  CHECK(problem(gguf({entry(std::string(65'535, 'k'), 1U)})) == "accepted");
  CHECK_THAT(problem(gguf({entry(std::string(65'536, 'k'), 1U)})), Contains("65536 bytes long"));
  CHECK_THAT(problem(gguf({entry("a", 13, "12345678")})), Contains("type code 13"));
  CHECK_THAT(problem(gguf({entry("a", ~0U, "12345678")})), Contains("type code 4294967295"));
  CHECK_THAT(problem(gguf({array("a", 13, 1, "12345678")})), Contains("type code 13"));
  CHECK_THAT(problem(gguf({array("a", 9, 1, raw<std::uint32_t>(4) + raw<std::uint64_t>(0))})),
             Contains("array of arrays"));
  CHECK_THAT(problem(gguf({entry("a", 7, "\2")})), Contains("neither 0 nor 1"));
  CHECK_THAT(problem(gguf({array("a", 7, 2, std::string("\1\377"))})), Contains("neither 0 nor 1"));
  for (const std::uint32_t alignment : {0U, 4U, 12U, 0x80000000U})
    CHECK_THAT(problem(gguf({entry("general.alignment", alignment)}, {place("t", {1}, 0, 0)}, "1234")),
               Contains("no multiple of 8"));
  CHECK_THAT(problem(gguf({entry("general.alignment", "x")})), Contains("of type text, expected an integer"));
}

TEST_CASE("tensors that the format does not allow") {
  const auto one = [](const std::string& tensor, std::size_t bytes = 64) {
    return problem(gguf({}, {tensor}, std::string(bytes, 'x')));
  };
  CHECK(one(place("t", {16}, 0, 0)) == "accepted");
  CHECK(one(place("t", {0, 5}, 0, 0), 0) == "accepted");
  CHECK_THAT(one(place("t", {17}, 0, 0)), Contains("takes 68 bytes from 0 of 64 data bytes"));
  CHECK_THAT(one(place("t", {15}, 0, 0), 93), Contains("29 foreign bytes"));
  CHECK_THAT(one(place("t", {1, 1, 1, 1, 16}, 0, 0)), Contains("5 dimensions"));
  CHECK_THAT(one(gguf_text("t") + raw(~0U)), Contains("4294967295 dimensions"));
  CHECK_THAT(one(place("t", {16}, 4, 0)), Contains("the code 4,"));
  CHECK_THAT(one(place("t", {16}, 1000, 0)), Contains("the code 1000,"));
  CHECK_THAT(one(place("t", {16}, 0, 32)), Contains("leaves a hole before it (begins at 32, expected 0)"));
  CHECK_THAT(one(place("t", {16}, 0, 8)), Contains("is not aligned"));
  CHECK_THAT(one(place("t", {16}, 0, ~0ULL - 31)), Contains("leaves a hole"));
  CHECK_THAT(one(place("t", {31}, 8, 0)),
             Contains("no whole number of blocks of 32 elements, as Q8_0 needs"));
  CHECK_THAT(one(place("t", {16, 2}, 8, 0)), Contains("no whole number of blocks"));
  CHECK_THAT(one(place("t", {}, 8, 0)), Contains("no whole number of blocks"));
  CHECK_THAT(one(place("t", {1ULL << 32, 1ULL << 30}, 0, 0)), Contains("overflows 64 bits"));
  CHECK_THAT(one(place("t", {1ULL << 62, 4}, 24, 0)), Contains("overflows 64 bits"));
  CHECK_THAT(one(place("", {16}, 0, 0)), Contains("0 bytes long"));
  CHECK(one(place(std::string(64, 't'), {16}, 0, 0)) == "accepted");
  CHECK_THAT(one(place(std::string(65, 't'), {16}, 0, 0)), Contains("65 bytes long"));

  const auto two = [](const std::string& a, const std::string& b) {
    return problem(gguf({}, {a, b}, std::string(128, 'x')));
  };
  CHECK(two(place("a", {16}, 0, 64), place("b", {16}, 0, 0)) == "accepted");
  CHECK_THAT(two(place("a", {16}, 0, 0), place("a", {16}, 0, 64)),
             Contains("tensor name \"a\" occurs twice"));
  CHECK_THAT(two(place("a", {16}, 0, 0), place("b", {16}, 0, 32)),
             Contains("tensor \"b\": overlaps the tensor before it (begins at 32, expected 64)"));
  CHECK_THAT(two(place("a", {16}, 0, 0), place("b", {32}, 0, 0)), Contains("overlaps"));
  CHECK_THAT(two(place("a", {16}, 0, 0), place("b", {8}, 0, 96)), Contains("leaves a hole"));
}

TEST_CASE("GGUF files are mapped, and told from others by their first bytes") {
  const Scratch scratch;
  std::ofstream(scratch.file("m.gguf"), std::ios::binary) << gguf({entry("a", 1U)});
  std::ofstream(scratch.file("other"), std::ios::binary) << "GGU";
  CHECK(is_gguf(scratch.file("m.gguf")));
  CHECK_FALSE(is_gguf(scratch.file("other")));
  CHECK_FALSE(is_gguf(scratch.file(".")));
  CHECK(GgufFile(scratch.file("m.gguf")).content.integer("a") == 1);
  CHECK_THROWS_WITH(GgufFile(scratch.file("other")),
                    Contains(scratch.file("other")) && Contains("not a GGUF file"));
  CHECK_THROWS_WITH(GgufFile(scratch.file("none")), Contains("cannot be opened"));
}

}  // namespace kvsim::model::test_gguf_file
