#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"

namespace kvsim::test_params {

using Catch::Contains;

namespace {

ParamValue parsed(ParamSpec spec, const std::string& text) {
  spec.name = "at";
  return parse_value(spec, text, "--at");
}

std::string refusal(const ParamSpec& spec, const std::string& text) {
  try {
    parsed(spec, text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("parameters: numbers are whole, in range and nothing else") {
  const ParamSpec count{.min = 1, .max = 64};
  CHECK(parsed(count, "64").whole == 64);
  CHECK(parsed(count, "064").text == "64");
  for (const char* wrong : {"", "0", "65", "-1", "1.5", "1x", " 1", "0x10", "99999999999999999999"})
    CHECK_THAT(refusal(count, wrong), Contains("--at: at=" + std::string(wrong) +
                                               " is not legal: at must be "
                                               "a whole number from 1 to 64"));
  CHECK(parsed({.max = kNoLimit}, "18446744073709551615").whole == 18446744073709551615ULL);
  CHECK_THAT(refusal({.min = 1, .max = kNoLimit}, "0"), Contains("a whole number, 1 or more"));
  const ParamSpec real{.type = ParamType::real, .max = 1};
  CHECK(parsed(real, "0.25").number == 0.25);
  CHECK(parsed(real, "-0").text == "0");
  for (const char* wrong : {"", "nan", "inf", "2", "0,5"})
    CHECK_THAT(refusal(real, wrong), Contains("a number from 0 to 1"));
}

TEST_CASE("parameters: shares are written as 0.1 or 10%, or as a word that stands for one") {
  CHECK(parsed({.type = ParamType::share}, "10%").number == 0.1);
  const ParamSpec split{.type = ParamType::share, .choices = {"prompt"}};
  CHECK(parsed(split, "0.5").number == 0.5);
  CHECK(parsed(split, "prompt").text == "prompt");
  for (const char* wrong : {"", "101%", "1.1", "-0.1", "%", "promt"})
    CHECK_THAT(refusal(split, wrong), Contains("a share from 0 to 1, such as 0.1 or 10% or prompt"));
  CHECK_THAT(refusal(split, "promt"), Contains("Did you mean prompt?"));
}

TEST_CASE("parameters: lists are lists of single values, each checked alike") {
  const ParamSpec counts{.type = ParamType::counts, .min = 1, .max = 64};
  const ParamValue bits = parsed(counts, "8, 016");
  CHECK(bits.text == "8,16");
  REQUIRE(bits.items.size() == 2);
  CHECK(bits.items[1].whole == 16);
  CHECK_THAT(refusal(counts, "8,65"), Contains("at=65 is not legal: at must be a whole number from 1 to 64"));
  CHECK_THAT(refusal(counts, "8,,16"), Contains("a list, each item a whole number from 1 to 64"));
  CHECK(parsed({.type = ParamType::shares}, "10%,0.5,1").items[2].number == 1);
  CHECK(parsed({.type = ParamType::texts}, "snapkv(window=8,pool=max:7),h2o").items[0].text ==
        "snapkv(window=8,pool=max:7)");
  const ParamSpec scopes{.type = ParamType::texts, .choices = {"all", "layer"}};
  CHECK(parsed(scopes, "layer,all").items.size() == 2);
  CHECK_THAT(refusal(scopes, "all,lyer"), Contains("at=lyer") && Contains("Did you mean layer?"));
}

TEST_CASE("parameters: a text is any text, a word has no commas and parentheses") {
  CHECK(parsed({.type = ParamType::text}, "a, (b").text == "a, (b");
  CHECK(parsed({.type = ParamType::word}, "4:2:1").text == "4:2:1");
  CHECK_THAT(refusal({.type = ParamType::word}, "a,b"), Contains("text without commas and parentheses"));
}

TEST_CASE("parameters: long values are cut in messages") {
  CHECK_THAT(refusal({.max = 1}, std::string(1000, '9')), Contains(std::string(80, '9') + "... is not"));
}

TEST_CASE("parameters: what is allowed, in short") {
  CHECK(allowed_values({.min = 1, .max = 100000}) == "1 to 100000");
  CHECK(allowed_values({.type = ParamType::counts, .max = kNoLimit}) == "0 or more each");
  CHECK(allowed_values({.type = ParamType::choice, .choices = {"a", "b"}}) == "a | b");
  CHECK(allowed_values({.type = ParamType::text, .form = "all, window:W"}) == "all, window:W");
  CHECK(allowed_values({.type = ParamType::text}).empty());
}

TEST_CASE("parameters: a name or type that was not declared is a bug of the reader") {
  ParamValues values;
  values.entries = {parsed({.max = 9}, "3"),
                    {.name = "flag", .text = "true", .type = ParamType::flag, .number = 1}};
  CHECK(values.count("at") == 3);
  CHECK(values.flag("flag"));
  CHECK(values.text() == "at=3,flag=true");
  CHECK_THROWS_AS(values.count("nothing"), Error);
  CHECK_THROWS_AS(values.real("at"), Error);
  CHECK_THROWS_AS(values.word("flag"), Error);
}

}  // namespace kvsim::test_params
