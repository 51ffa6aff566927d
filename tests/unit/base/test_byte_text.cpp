#include <catch2/catch.hpp>
#include <limits>

#include "sim/base/number_text.hpp"

namespace kvsim::test_byte_text {

TEST_CASE("bytes are shown in binary units") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1024) == "1 KiB");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(1023 * 1024) == "1023 KiB");
  CHECK(bytes_text(1234567) == "1.177 MiB");
  CHECK(bytes_text(393216) == "384 KiB");
  CHECK(bytes_text(std::numeric_limits<std::uint64_t>::max()) == "16 EiB");
}

}  // namespace kvsim::test_byte_text
