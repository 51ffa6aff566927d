// Any text either is a study or is refused with a reason, and a study is the same after writing and reading
// it again.
#include <boost/json/object.hpp>
#include <catch2/catch.hpp>
#include <string>

#include "analysis/study/config/study_config.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

using namespace kvsim;
using namespace kvsim::analysis;

namespace {

constexpr std::string_view kStudy =
    R"({"traces":["a*.h5",{"files":"b.h5","name":"c"}],"capture":{"model":"m","workloads":[{"kind":"needle",)"
    R"("context":9,"count":2}],"elem":"f32"},"policies":["all"],"budgets":["5%",128],"seeds":[0,7],)"
    R"("analyses":["hash",{"kind":"hash","table":"x","bits":[8,16]}],"statistics":{"confidence":0.9},"report":true})";

/// Pieces that occur in a study, and some that do not.
constexpr std::string_view kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "null",
                                        "true",
                                        "-1",
                                        "1e308",
                                        "0.5",
                                        "\"\"",
                                        "\"files\"",
                                        "\"*\":",
                                        "\"a.\":",
                                        "{}",
                                        "[]",
                                        "\\",
                                        "\xff",
                                        "18446744073709551616",
                                        "\"traces\":",
                                        "\"capture\":null,"};

std::string mutated(std::uint64_t key) {
  std::string text(kStudy);
  const auto draw = [&](std::uint64_t n, std::size_t below) {
    return static_cast<std::size_t>(uniform01(combine({key, n})) * static_cast<double>(below));
  };
  for (std::uint64_t change = 0; change <= draw(0, 2); ++change) {
    const std::size_t at = draw(10 * change + 1, text.size());
    text.erase(at, draw(10 * change + 2, 6));
    text.insert(at, kPieces[draw(10 * change + 3, std::size(kPieces))]);
  }
  return text;
}

bool try_text(const std::string& text) {
  std::string written;
  try {
    written = readable_json(study_document(read_study(text, "s.json")));
  } catch (const Error& error) {
    CAPTURE(text);
    CHECK((error.kind() == ErrorKind::input || error.kind() == ErrorKind::usage));
    CHECK(std::string(error.what()).starts_with("s.json"));
    return false;
  }
  CAPTURE(text);
  CHECK(readable_json(study_document(read_study(written, "s.json"))) == written);
  return true;
}

}  // namespace

TEST_CASE("mutated studies are read or refused") {
  CHECK(try_text(std::string(kStudy)));
  int accepted = 0;
  constexpr int kTexts = 20000;
  for (std::uint64_t i = 0; i < kTexts; ++i) accepted += try_text(mutated(combine({40, i}))) ? 1 : 0;
  CHECK(accepted > kTexts / 100);
  CHECK(accepted < kTexts / 2);
}
