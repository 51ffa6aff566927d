#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/safetensors.hpp"

namespace kvsim::model::test_safetensors {
namespace {

using Catch::Matchers::Contains;

std::string with_length(std::uint64_t length, const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}
std::string make_file(const std::string& header, const std::string& data = {}) {
  return with_length(header.size(), header, data);
}
std::string eight_bytes(const std::string& entry) {
  return make_file("{\"t\":" + entry + "}", std::string(8, 'x'));
}

TensorMap parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "file");
}

std::string problem(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a sound file gives its tensors") {
  const std::string file = make_file(
      R"( {"__metadata__":{"format":"pt"},
          "b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},
          "a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},
          "none":{"dtype":"F16","shape":[3,0],"data_offsets":[10,10]}}   )",
      "..12345678");
  const TensorMap tensors = parse(file);
  REQUIRE(tensors.size() == 3);
  CHECK(tensors.at("a").elements() == 1);
  CHECK(tensors.at("none").elements() == 0);
  CHECK(tensors.at("b").shape == std::vector<std::uint64_t>{1, 2});
  CHECK(std::memcmp(tensors.at("b").data.data(), "12345678", 8) == 0);
  CHECK(tensor_elem(tensors.at("a"), "a") == Elem::bf16);
  CHECK(tensor_elem(tensors.at("b"), "b") == Elem::f32);
}

TEST_CASE("a file without tensors is one without data") {
  CHECK(parse(make_file("{}")).empty());
  CHECK_THAT(problem(make_file("{}", "x")), Contains("cover 0 of 1"));
}

TEST_CASE("wrong header lengths") {
  CHECK_THAT(problem("short"), Contains("too short"));
  CHECK_THAT(problem(with_length(100, "{}", "")), Contains("past the end"));
  CHECK_THAT(problem(with_length((16ULL << 20) + 1, "{}", "")), Contains("announce a header of 16777217"));
  // Length plus a constant, or plus 8, wraps to a small number.
  for (const std::uint64_t length : {~0ULL, ~0ULL - 7, ~0ULL - 8, 1ULL << 63, 1ULL << 32})
    CHECK_THAT(problem(with_length(length, "{}", "")), Contains("announce"));
}

TEST_CASE("headers that are not what they should be") {
  CHECK_THAT(problem(make_file("")), Contains("not a JSON object"));
  CHECK_THAT(problem(make_file("   ")), Contains("not a JSON object"));
  CHECK_THAT(problem(make_file("[]")), Contains("not a JSON object"));
  CHECK_THAT(problem(make_file("{")), Contains("not valid JSON"));
  CHECK_THAT(problem(make_file("{} {}")), Contains("JSON"));
  CHECK_THAT(problem(make_file("{\"\xff\":1}")), Contains("not valid JSON"));
  CHECK_THAT(problem(make_file(R"({"t":1})")), Contains("expected a JSON object"));
  CHECK_THAT(problem(make_file(R"({"__metadata__":{"a":1}})")), Contains("\"a\" must be a string"));
  CHECK_THAT(problem(make_file(std::string(40, '[') + std::string(40, ']'))), Contains("JSON"));
  CHECK_THAT(problem(make_file("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}")),
             Contains("not valid JSON"));
}

TEST_CASE("a name that occurs twice is refused in any place") {
  const std::string entry = R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  CHECK_THAT(problem(make_file("{\"t\":" + entry + ",\"t\":" + entry + "}", "12345678")),
             Contains("\"t\" occurs twice"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"shape":[8],"data_offsets":[0,8]})")),
             Contains("\"shape\" occurs twice"));
  // The same name, spelled with an escape.
  CHECK_THAT(problem(make_file("{\"t\":" + entry + ",\"\\u0074\":" + entry + "}", "12345678")),
             Contains("\"t\" occurs twice"));
}

TEST_CASE("a shape whose product wraps is not an empty tensor") {
  // 2^32 * 2^32 wraps to 0, which would agree with an empty range.
  CHECK_THAT(
      problem(make_file(R"({"t":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})")),
      Contains("overflows 64 bits"));
  // 2^61 elements of 8 bytes wrap to 0 only if counted in bits.
  CHECK_THAT(
      problem(make_file(R"({"t":{"dtype":"F64","shape":[4294967296,536870912],"data_offsets":[0,0]}})")),
      Contains("overflows 64 bits"));
  CHECK_THAT(problem(make_file(R"({"t":{"dtype":"U8","shape":[4294967297],"data_offsets":[0,0]}})")),
             Contains("outside 0..4294967296"));
}

TEST_CASE("sizes from shape and from offsets must agree") {
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})")),
             Contains("take 4 bytes, data_offsets span 8"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})")),
             Contains("take 12 bytes, data_offsets span 8"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"F4","shape":[15],"data_offsets":[0,8]})")),
             Contains("no whole number of bytes"));
  CHECK(parse(eight_bytes(R"({"dtype":"F4","shape":[16],"data_offsets":[0,8]})")).size() == 1);
}

TEST_CASE("offsets that are not two ascending integers inside the buffer") {
  for (const char* offsets : {"[8]", "[]", "[0,4,8]"})
    CHECK_THAT(
        problem(eight_bytes(std::string(R"({"dtype":"U8","shape":[8],"data_offsets":)") + offsets + "}")),
        Contains("must hold two integers"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})")),
             Contains("run backwards"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})")),
             Contains("outside 0..8"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":[-1,8]})")),
             Contains("expected an integer"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8.0]})")),
             Contains("expected an integer"));
  // 2^64 would be parsed as a double.
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]})")),
             Contains("expected an integer"));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":"0,8"})")),
             Contains("JSON array"));
}

TEST_CASE("entries with missing, foreign or too many parts") {
  CHECK_THAT(problem(eight_bytes(R"({"shape":[8],"data_offsets":[0,8]})")), Contains("missing \"dtype\""));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","data_offsets":[0,8]})")), Contains("missing \"shape\""));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8]})")), Contains("missing \"data_offsets\""));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"strides":[1]})")),
             Contains("unexpected member \"strides\""));
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"U8","shape":[1,1,1,1,8],"data_offsets":[0,8]})")),
             Contains("more than 4 dimensions"));
  CHECK_THAT(problem(make_file("{\"" + std::string(513, 'n') +
                               R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})")),
             Contains("longer than 512"));
}

TEST_CASE("an unknown dtype is refused before its size is guessed") {
  CHECK_THAT(problem(eight_bytes(R"({"dtype":"Q4_K","shape":[8],"data_offsets":[0,8]})")),
             Contains("unknown dtype \"Q4_K\""));
  const TensorMap tensors = parse(eight_bytes(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})"));
  CHECK_THROWS_WITH(tensor_elem(tensors.at("t"), "t"),
                    Contains("dtype I64 is not supported") && Contains("\"t\""));
}

TEST_CASE("tensors tile the buffer") {
  const auto two = [](const char* a, const char* b) {
    return make_file(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + a +
                         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                     "12345678");
  };
  CHECK(parse(two("[4,8]", "[0,4]")).size() == 2);
  CHECK_THAT(problem(two("[0,4]", "[0,4]")), Contains("overlaps"));
  CHECK_THAT(problem(two("[0,4]", "[3,7]")), Contains("overlaps"));
  CHECK_THAT(problem(two("[1,5]", "[4,8]")), Contains("leaves a hole"));
  CHECK_THAT(problem(make_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "12345678")),
             Contains("cover 4 of 8"));
}

TEST_CASE("a header of too many values is refused while it is read") {
  std::string header = "{\"t\":[0";
  for (int i = 0; i < 2'100'000; ++i) header += ",0";
  CHECK_THAT(problem(make_file(header + "]}")), Contains("more values"));
}

TEST_CASE("checkpoints on disk") {
  const test::Scratch scratch;
  const std::string entry_a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string entry_b = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string directory = scratch.file("");
  const auto open = [&] { return Checkpoint(directory); };
  const auto index = [&](const std::string& map) {
    write_file(scratch.file("model.safetensors.index.json"),
               R"({"metadata":{"total_size":1},"weight_map":)" + map + "}");
  };

  SECTION("nothing there") {
    CHECK_THROWS_WITH(open(), Contains("neither model.safetensors nor"));
  }
  SECTION("one file, odd header length, so unaligned data") {
    write_file(scratch.file("model.safetensors"), make_file(entry_a + " ", "1234"));
    const Checkpoint checkpoint = open();
    CHECK(checkpoint.has("a"));
    CHECK_THROWS_WITH(checkpoint.tensor("z"), Contains("\"z\" is missing"));
  }
  SECTION("digest of the shards does not depend on their names") {
    const std::string one = make_file(entry_a, "1234"), two = make_file(entry_b, "5678");
    write_file(scratch.file("x.safetensors"), one);
    write_file(scratch.file("y.safetensors"), two);
    index(R"({"a":"x.safetensors","b":"y.safetensors"})");
    const std::string digest = open().sha256();
    write_file(scratch.file("x.safetensors"), two);
    write_file(scratch.file("y.safetensors"), one);
    index(R"({"b":"x.safetensors","a":"y.safetensors"})");
    CHECK(open().sha256() == digest);
    const auto sha = [](const std::string& text) {
      Sha256 sum;
      sum.update(text.data(), text.size());
      return sum.hex();
    };
    CHECK(digest == sha(std::min(sha(one), sha(two)) + std::max(sha(one), sha(two))));
  }
  SECTION("a mapped tensor that its shard lacks") {
    write_file(scratch.file("x.safetensors"), make_file(entry_a, "1234"));
    index(R"({"b":"x.safetensors"})");
    CHECK_THROWS_WITH(open(), Contains("\"b\" is not in x.safetensors"));
  }
  SECTION("one tensor in two shards") {
    write_file(scratch.file("x.safetensors"), make_file(entry_a, "1234"));
    write_file(
        scratch.file("y.safetensors"),
        make_file(
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
            "1234"));
    index(R"({"a":"x.safetensors","b":"y.safetensors"})");
    CHECK_THROWS_WITH(open(),
                      Contains("\"a\" is in") && Contains("x.safetensors") && Contains("y.safetensors"));
  }
  SECTION("a tensor that the index does not list is not part of the checkpoint") {
    write_file(
        scratch.file("x.safetensors"),
        make_file(
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"z":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
            "1234"));
    index(R"({"a":"x.safetensors"})");
    const Checkpoint checkpoint = open();
    CHECK(checkpoint.has("a"));
    CHECK_FALSE(checkpoint.has("z"));
    CHECK(checkpoint.unmapped() == std::vector<std::string>{"z"});
  }
  SECTION("shard names that contain a path") {
    write_file(scratch.file("x.safetensors"), make_file(entry_a, "1234"));
    for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..\\\\x.safetensors", ".",
                             "..", "", "x.bin", ".safetensors", "x.safetensors\\u0000.safetensors"}) {
      index(std::string("{\"a\":\"") + name + "\"}");
      INFO(name);
      CHECK_THROWS_WITH(open(), Contains("is not a plain file name"));
    }
  }
  SECTION("links the user has are followed") {
    write_file(scratch.file("blob"), make_file(entry_a, "1234"));
    std::filesystem::create_symlink("blob", scratch.file("model.safetensors"));
    CHECK(open().has("a"));
  }
  SECTION("not a regular file") {
    std::filesystem::create_directory(scratch.file("model.safetensors"));
    CHECK_THROWS_WITH(open(), Contains("not a regular file"));
  }
  SECTION("empty weight_map") {
    index("{}");
    CHECK_THROWS_WITH(open(), Contains("weight_map is empty"));
  }
  SECTION("a shard that shrinks after it was opened is noticed") {
    write_file(scratch.file("model.safetensors"), make_file(entry_a, "1234"));
    const Checkpoint checkpoint = open();
    std::filesystem::resize_file(scratch.file("model.safetensors"), 10);
    CHECK_THROWS_WITH(checkpoint.check_unchanged(), Contains("truncated"));
    CHECK_THROWS_WITH(checkpoint.sha256(), Contains("truncated"));
  }
}

}  // namespace kvsim::model::test_safetensors
