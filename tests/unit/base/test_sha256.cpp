// SHA-256 against the vectors of FIPS 180-2 and NIST.
#include <catch2/catch.hpp>
#include <string>

#include "sim/base/sha256.hpp"

namespace kvsim::test_sha256 {

using kvsim::Sha256;

namespace {

std::string hex_of(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

}  // namespace

TEST_CASE("known vectors") {
  CHECK(hex_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex_of(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("pieces add up to the whole") {
  const std::string text(1000, 'x');
  Sha256 sha;
  sha.update(text.data(), 1);
  sha.update(text.data(), 0);
  sha.update(text.data() + 1, 63);
  sha.update(text.data() + 64, 936);
  CHECK(sha.hex() == hex_of(text));
}

}  // namespace kvsim::test_sha256
