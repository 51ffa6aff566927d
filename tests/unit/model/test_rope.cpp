#include <cmath>
#include <numbers>

#include "tests/unit/model/small_config.hpp"
#include "traces/model/rope.hpp"

namespace kvsim::model::test_rope {
namespace {

using Catch::Matchers::Contains;

const std::string kLlama3 =
    R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192)";

}  // namespace

TEST_CASE("rope scaling in every spelling") {
  const RopeConfig old_name =
      parse(R"("rope_theta":500000,"rope_scaling":{"type":"linear","factor":4})").rope;
  CHECK((old_name.type == "linear" && old_name.factor == 4 && old_name.theta == 500000));
  const RopeConfig new_name = parse(R"("rope_scaling":{"rope_type":"linear","factor":4.0})").rope;
  CHECK((new_name.type == "linear" && new_name.factor == 4));
  const RopeConfig both = parse(R"("rope_scaling":{"type":"linear","rope_type":"linear","factor":2})").rope;
  CHECK(both.factor == 2);
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear","rope_type":"default","factor":2})"),
             Contains("disagree"));
  const RopeConfig v5 = parse("\"rope_parameters\":{\"rope_theta\":500000.0," + kLlama3 + "}").rope;
  CHECK((v5.type == "llama3" && v5.theta == 500000 && v5.original_max_positions == 8192));
  const RopeConfig v4 = parse("\"rope_theta\":500000.0,\"rope_scaling\":{" + kLlama3 + "}").rope;
  CHECK((v4.type == "llama3" && v4.high_freq_factor == 4));
  CHECK_THAT(problem(R"("rope_theta":1000,"rope_parameters":{"rope_theta":2000})"), Contains("differs"));
  CHECK_THAT(problem(R"("rope_scaling":{"rope_type":"default"},"rope_parameters":{"rope_theta":2000})"),
             Contains("both rope_parameters and rope_scaling"));
  CHECK_THAT(problem(R"("rope_parameters":{"full_attention":{"rope_theta":2000}})"),
             Contains("per layer type"));
}

TEST_CASE("rope scaling that is not supported is refused by name") {
  for (const char* type : {"dynamic", "su", "proportional", "Default"}) {
    CHECK_THAT(problem(std::string(R"("rope_scaling":{"rope_type":")") + type + "\",\"factor\":2}"),
               Contains(type));
  }
  // A Phi-3 model has only two types; its oldest files call longrope su or yarn.
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear","factor":2})", {}, "phi3"),
             Contains("\"linear\"") && Contains("Supported: default, longrope"));
  for (const char* type : {"su", "yarn", "longrope"}) {
    CHECK_THAT(problem(std::string(R"("rope_scaling":{"type":")") + type + "\",\"factor\":2}", {}, "phi3"),
               Contains("missing \"short_factor\""));
  }
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear"})"), Contains("missing \"factor\""));
  CHECK_THAT(problem(R"("rope_scaling":{"type":"linear","factor":0.5})"), Contains("outside"));
  CHECK_THAT(
      problem(
          R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":64})"),
      Contains("smaller than high_freq_factor"));
  CHECK_THAT(problem(R"("rope_scaling":{"type":"yarn","factor":4,"beta_fast":1,"beta_slow":2})"),
             Contains("larger than beta_fast"));
  CHECK_THAT(problem(R"("rope_theta":1,"rope_scaling":{"type":"yarn","factor":4})"), Contains("above 1"));
}

TEST_CASE("only Phi-3 rotates part of a head") {
  // Heads of 16.
  CHECK(parse("", {}, "phi3").rope.rotary_dim == 16);
  CHECK(parse(R"("partial_rotary_factor":0.75)", {}, "phi3").rope.rotary_dim == 12);
  CHECK(parse(R"("rope_parameters":{"partial_rotary_factor":0.5})", {}, "phi3").rope.rotary_dim == 8);
  CHECK(parse(R"("partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":0.5})", {}, "phi3")
            .rope.rotary_dim == 8);
  CHECK(parse(R"("partial_rotary_factor":0.5,"rope_scaling":null)", {}, "phi3").rope.rotary_dim == 8);
  CHECK_THAT(
      problem(R"("partial_rotary_factor":0.75,"rope_parameters":{"partial_rotary_factor":0.5})", {}, "phi3"),
      Contains("differs"));
  for (const char* factor : {"0", "1.5", "-0.5", "\"half\"", "0.01", "0.2"}) {  // 0.2 * 16 = 3 components
    INFO(factor);
    CHECK(problem(std::string("\"partial_rotary_factor\":") + factor, {}, "phi3") != "accepted");
  }
  CHECK(parse(R"("partial_rotary_factor":1.0)").rope.rotary_dim == 16);
  CHECK_THAT(problem(R"("partial_rotary_factor":0.5)"), Contains("not known for llama"));
  CHECK_THAT(problem(R"("rope_parameters":{"rope_theta":1e4,"partial_rotary_factor":0.5})"),
             Contains("not known for llama"));
}

TEST_CASE("longrope keeps one list of factors for a run") {
  const std::string lists =
      R"("type":"longrope","short_factor":[1,1,2,2],"long_factor":[1,2,4,8.0],"rope_theta":100)";
  const std::string half = "\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":32,";
  const RopeConfig rope = parse(half + "\"rope_scaling\":{" + lists + "}", {}, "phi3").rope;
  CHECK(rope.original_max_positions == 32);
  // The context of 128 is four times the original: sqrt(1 + ln 4 / ln 32) = sqrt(1 + 2/5).
  CHECK(rope.attention_factor == Approx(std::sqrt(1.4)));
  // 100^(-i/4) = 1, 0.316, 0.1, 0.0316, each divided by its factor.
  const double root = std::sqrt(0.1);
  const std::vector<float> up_to = rope_frequencies(rope, 32), beyond = rope_frequencies(rope, 33);
  const std::vector<double> short_ones{1, root, 0.05, 0.05 * root}, long_ones{1, root / 2, 0.025, root / 80};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(up_to[i] == Approx(short_ones[i]).epsilon(1e-6));
    CHECK(beyond[i] == Approx(long_ones[i]).epsilon(1e-6));
  }
  CHECK(rope_frequencies(rope, 128) == beyond);

  check_rope_regime(rope, 10, 32);   // short throughout
  check_rope_regime(rope, 33, 128);  // long from the beginning
  CHECK_THROWS_WITH(check_rope_regime(rope, 10, 33), Contains("At most 22 keep to the short factors"));
  CHECK_THROWS_WITH(check_rope_regime(rope, 32, 33), Contains("At most 0"));
  check_rope_regime(RopeConfig{}, 10, 1000);

  const auto factor = [&](const std::string& extra) {
    return parse(half + "\"rope_scaling\":{" + extra + lists + "}", {}, "phi3").rope.attention_factor;
  };
  CHECK(factor("\"attention_factor\":1.25,") == 1.25);
  CHECK(factor("\"factor\":32,") == Approx(std::sqrt(2.0)));
  CHECK(factor("\"factor\":1,") == 1);

  const auto complaint = [&](const std::string& scaling, const std::string& more = "") {
    return problem(more + "\"rope_scaling\":{\"type\":\"longrope\"," + scaling + "}", {}, "phi3");
  };
  const std::string eight = "[1,1,1,1,1,1,1,1]";
  CHECK_THAT(complaint(lists.substr(18)), Contains("lists 4 factors for 8 rotating pairs"));
  CHECK_THAT(complaint("\"short_factor\":" + eight), Contains("missing \"long_factor\""));
  CHECK_THAT(complaint("\"short_factor\":" + eight + ",\"long_factor\":[]"), Contains("lists 0 factors"));
  CHECK_THAT(complaint("\"short_factor\":" + eight + ",\"long_factor\":7"), Contains("long_factor"));
  for (const char* wrong : {"0", "-1", "1e9", "\"1\"", "null", "[1]"}) {
    CHECK_THAT(
        complaint("\"short_factor\":[1,1,1,1,1,1,1," + std::string(wrong) + "],\"long_factor\":" + eight),
        Contains("expected numbers"));
  }
  CHECK_THAT(complaint("\"original_max_position_embeddings\":1,\"short_factor\":" + eight +
                       ",\"long_factor\":" + eight),
             Contains("at least 2"));
  CHECK_THAT(complaint("\"original_max_position_embeddings\":64,\"short_factor\":" + eight +
                           ",\"long_factor\":" + eight,
                       "\"original_max_position_embeddings\":32,"),
             Contains("differs"));
}

TEST_CASE("frequencies by hand") {
  // Four components rotate: exponents 0 and 1/2.
  RopeConfig rope;
  rope.rotary_dim = 4;
  rope.theta = 100;
  CHECK(rope_frequencies(rope, 1) == std::vector<float>{1.0F, 0.1F});
  rope.type = "linear";
  rope.factor = 4;
  CHECK(rope_frequencies(rope, 1) == std::vector<float>{0.25F, 0.1F / 4});
}

TEST_CASE("yarn blends pair by pair") {
  const RopeConfig rope =
      parse(
          R"("head_dim":8,"rope_theta":100,"rope_scaling":{"type":"yarn","factor":4,"beta_fast":4,"original_max_position_embeddings":32})")
          .rope;
  CHECK(rope.attention_factor == Approx(1 + 0.1 * std::log(4.0)));
  // The pair of n turns in 32 tokens is 8 ln(32 / (2 pi n)) / (2 ln 100): 0.21 for 4 turns, 1.41 for one, so
  // the ramp goes from pair 0 to pair 2.
  const std::vector<float> f = rope_frequencies(rope, 1);
  const double root = std::sqrt(0.1);
  CHECK(f[0] == 1);
  CHECK(f[1] == Approx(root * (0.5 / 4 + 0.5)).epsilon(1e-6));
  CHECK(f[2] == Approx(0.1 / 4).epsilon(1e-6));
  CHECK(f[3] == Approx(0.1 * root / 4).epsilon(1e-6));
  RopeConfig exact = rope;
  exact.truncate = false;
  const double low = 4 * std::log(4 / std::numbers::pi) / std::log(100.0);
  const double high = 4 * std::log(16 / std::numbers::pi) / std::log(100.0);
  const double divided = (1 - low) / (high - low);
  CHECK(rope_frequencies(exact, 1)[1] == Approx(root * (divided / 4 + 1 - divided)).epsilon(1e-5));

  const auto factor = [](const std::string& extra) {
    return parse("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4" + extra + "}").rope.attention_factor;
  };
  CHECK(factor(",\"attention_factor\":0.5") == 0.5);
  CHECK(factor(",\"mscale\":2.0,\"mscale_all_dim\":1") ==
        Approx((1 + 0.2 * std::log(4.0)) / (1 + 0.1 * std::log(4.0))));
  CHECK(factor(",\"mscale\":2.0") == rope.attention_factor);
}

TEST_CASE("llama3 scaling has three bands") {
  // Original context 32, low 1, high 4: wavelengths below 8 are kept, above 32 divided, between blended.
  RopeConfig rope;
  rope.rotary_dim = 16;
  rope.type = "llama3";
  rope.theta = 10000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_positions = 32;
  const std::vector<float> f = rope_frequencies(rope, 1);  // plain: 10000^(-i/8) = 1, 0.316, 0.1, ...
  CHECK(f[0] == 1.0F);                                     // wavelength 6.28
  const double plain = std::pow(10000.0, -1.0 / 8), wavelength = 2 * std::numbers::pi / plain;  // 19.87
  const double keep = (32 / wavelength - 1) / 3;
  CHECK(f[1] == Approx((1 - keep) * plain / 8 + keep * plain).epsilon(1e-6));
  for (std::size_t i = 2; i < f.size(); ++i)  // 62.8 and longer
    CHECK(f[i] == Approx(std::pow(10000.0, -static_cast<double>(i) / 8) / 8).epsilon(1e-6));
}

}  // namespace kvsim::model::test_rope
