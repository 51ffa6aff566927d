#include <catch2/catch.hpp>

#include "sim/base/number_text.hpp"

namespace kvsim::test_sizes {

TEST_CASE("tokens are whole numbers, or with K or M multiples of 1024") {
  CHECK(tokens_of("8192") == 8192u);
  CHECK(tokens_of("8K") == 8192u);
  CHECK(tokens_of("8k") == 8192u);
  CHECK(tokens_of("2M") == 2u << 20);
  CHECK(tokens_of("0") == 0u);
  CHECK(tokens_of("18446744073709551615") == ~std::uint64_t{0});
  for (const char* text : {"", "K", "-1", "+1", "1.5", "1.5K", "8KiB", "8G", " 8", "8 K", "0x8", "1e3",
                           "18446744073709551616", "18014398509481984K"}) {
    CAPTURE(text);
    CHECK(!tokens_of(text));
  }
}

TEST_CASE("bytes have a unit that ends with B") {
  CHECK(bytes_of("512B") == 512.0);
  CHECK(bytes_of("64KiB") == 65536.0);
  CHECK(bytes_of("1.5 MB") == 1.5e6);
  CHECK(bytes_of("80GiB") == 80 * 0x1p30);
  CHECK(bytes_of("2TB") == 2e12);
  for (const char* text : {"", "B", "512", "64K", "1G", "xB", "infGiB", "nanB", "1e400B"}) {
    CAPTURE(text);
    CHECK(!bytes_of(text));
  }
}

TEST_CASE("sizes that an option cannot take are refused by its name") {
  CHECK(parse_tokens("2K", "--page") == 2048);
  CHECK(parse_bytes("1KiB", "--memory") == 1024);
  CHECK_THROWS_WITH(parse_tokens("0", "--page"), Catch::Contains("--page") && Catch::Contains("at least 1"));
  CHECK_THROWS_WITH(parse_tokens("8KiB", "--page"), Catch::Contains("no number of tokens"));
  CHECK_THROWS_WITH(parse_tokens("99999999999999999999K", "--page"), Catch::Contains("64 bits"));
  CHECK_THROWS_WITH(parse_bytes("80G", "--memory"), Catch::Contains("80GiB"));
  CHECK_THROWS_WITH(parse_bytes("0B", "--memory"), Catch::Contains("--memory"));
  CHECK_THROWS_WITH(parse_bytes("9999999TiB", "--memory"), Catch::Contains("64 bits"));
}

}  // namespace kvsim::test_sizes
