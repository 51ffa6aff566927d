#include <catch2/catch.hpp>
#include <random>

#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"

namespace kvsim::test_gzip {

using Catch::Contains;

namespace {

constexpr std::uint64_t kMost = 1ULL << 30;

std::string noise(std::size_t bytes) {
  std::mt19937 draw(7);
  std::string out;
  while (out.size() < bytes) out += static_cast<char>(draw());
  return out;
}

std::string text(const std::string& bytes) {
  return gunzipped(bytes, kMost, "f.gz");
}

}  // namespace

TEST_CASE("gzip: any text comes back, and equal texts are equal bytes") {
  for (const std::string& each :
       {std::string(), std::string("a,b\n"), std::string(3'000'000, 'x'), noise(1'000'000)}) {
    const std::string bytes = gzipped(each);
    CHECK(is_gzip(bytes));
    CHECK(text(bytes) == each);
    CHECK(gzipped(each) == bytes);
  }
  CHECK(gzipped(std::string(3'000'000, 'x')).size() < 10'000);
  CHECK_FALSE(is_gzip("trace,policy\n"));
}

TEST_CASE("gzip: members one behind the other are one text") {
  CHECK(text(gzipped("key\n") + gzipped("") + gzipped("1\n2\n")) == "key\n1\n2\n");
}

TEST_CASE("gzip: what is damaged, cut off or too large is refused") {
  const std::string whole = gzipped(noise(600'000));
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{12}, whole.size() / 2, whole.size() - 1})
    CHECK_THROWS_WITH(text(whole.substr(0, bytes)), Contains("f.gz") && Contains("cut off"));
  for (const std::size_t place : {std::size_t{0}, whole.size() / 3, whole.size() - 6}) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    CHECK_THROWS_AS(text(changed), Error);
  }
  CHECK_THROWS_AS(text(whole + "junk"), Error);
  CHECK_THROWS_WITH(gunzipped(whole, 599'999, "f.gz"), Contains("more than"));
  CHECK(gunzipped(whole, 600'000, "f.gz").size() == 600'000);
}

}  // namespace kvsim::test_gzip
