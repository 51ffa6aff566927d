// Any bytes either are a table or are refused with an input error, and a table is the same after writing and
// reading it again.
#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/results/reading/read_csv.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

using namespace kvsim;
using namespace kvsim::analysis;

namespace {

/// Bytes that matter to the format, and to numbers.
std::string noise(std::uint64_t key) {
  constexpr std::string_view kBytes = ",,,,\n\n\n\"\"\"\r0123456789.e-+infaxb\0\xef\xbb\xbf\xff";
  std::string text;
  const auto length = static_cast<std::size_t>(uniform01(combine({key, 0})) * 60);
  for (std::uint64_t i = 0; i < length; ++i)
    text += kBytes[static_cast<std::size_t>(uniform01(combine({key, 1, i})) *
                                            static_cast<double>(kBytes.size()))];
  return text;
}

std::string mutated(std::uint64_t key) {
  std::string text = "policy,budget,r,n\nh2o,128,0.5,3\n\"snapkv(a=1,b=\"\"x\"\")\",25%,,4\n";
  const auto place = [&](std::uint64_t draw) {
    return static_cast<std::size_t>(uniform01(combine({key, draw})) * static_cast<double>(text.size()));
  };
  text.erase(place(2), place(3) % 4);
  text.insert(place(4), noise(key).substr(0, 3));
  return text;
}

std::string csv(const Records& records) {
  std::ostringstream out;
  write_csv(out, records);
  return out.str();
}

/// Whether the text is accepted.
bool try_text(const std::string& text) {
  Records once;
  try {
    once = parse_csv(text, "a.csv");
  } catch (const Error& error) {
    CAPTURE(text);
    CHECK(error.kind() == ErrorKind::input);
    return false;
  }
  CAPTURE(text);
  const std::string written = csv(once);
  CHECK(csv(parse_csv(written, "a.csv")) == written);
  return true;
}

}  // namespace

TEST_CASE("mutated tables are read or refused") {
  int accepted = 0;
  constexpr int kTexts = 20000;
  for (std::uint64_t i = 0; i < kTexts; ++i) accepted += try_text(mutated(combine({30, i}))) ? 1 : 0;
  CHECK(accepted > kTexts / 10);
  CHECK(accepted < kTexts * 9 / 10);
}

TEST_CASE("noise is read or refused") {
  for (std::uint64_t i = 0; i < 20000; ++i) try_text(noise(combine({31, i})));
}
