#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/workloads/filler_text.hpp"

namespace kvsim::workload::test_filler_text {

namespace {

const std::vector<Passage> kTwo{{"a", "One two. Three.\n\n\n  Four-five\n\n"}, {"b", "Six."}};

/// Text with evidence in brackets and questions in braces.
std::string marked(const SpannedText& text) {
  std::string out;
  const std::vector<RoleSpan> spans = text.spans();
  for (std::uint64_t at = 0; at <= text.text().size(); ++at) {
    for (const RoleSpan& span : spans) {
      if (span.role == Role::context) continue;
      if (span.end == at) out += span.role == Role::evidence ? "]" : "}";
    }
    for (const RoleSpan& span : spans) {
      if (span.role == Role::context) continue;
      if (span.begin == at) out += span.role == Role::evidence ? "[" : "{";
    }
    if (at < text.text().size()) out += text.text()[at];
  }
  return out;
}

std::string woven(std::string_view filler, const std::vector<Insertion>& insertions) {
  SpannedText out;
  weave(out, filler, insertions);
  return marked(out);
}

}  // namespace

TEST_CASE("spans: adjacent parts of a role are one span, evidence is context too") {
  SpannedText text;
  text.add("Read.", Role::question)
      .add(" A", Role::context)
      .add("", Role::question)
      .add(" B", Role::evidence);
  text.add(" C", Role::evidence).add(" D", Role::context).add("?", Role::question);
  CHECK(text.text() == "Read. A B C D?");
  CHECK(text.spans() == std::vector<RoleSpan>{{0, 5, Role::question},
                                              {5, 13, Role::context},
                                              {7, 11, Role::evidence},
                                              {13, 14, Role::question}});
}

TEST_CASE("filler: cuts are where words, marks and lines end") {
  // The cuts of "Six." are after "Six" and after the full stop.
  const std::vector<Passage> six(kTwo.begin() + 1, kTwo.end());
  FillerText text(six, Draws(1, "x", 0));
  CHECK(text.first(0).empty());
  CHECK(text.first(1) == "Six");
  CHECK(text.first(2) == "Six.");
  CHECK(text.first(3) == "Six.\n\nSix");
  CHECK(text.first(4) == "Six.\n\nSix.");
}

TEST_CASE("filler: a longer piece continues a shorter one, in any order of calls") {
  for (std::uint64_t index = 0; index < 20; ++index) {
    FillerText up(builtin_passages(), Draws(1, "x", index)), down(builtin_passages(), Draws(1, "x", index));
    const std::string all(down.first(60000));
    for (const std::uint64_t cuts : {1, 10, 1000, 59999})
      CHECK(up.first(cuts) == all.substr(0, up.first(cuts).size()));
    CHECK(up.first(60000) == all);
    CHECK(down.first(10).size() < down.first(11).size());
  }
}

TEST_CASE("filler: every passage is used before one repeats") {
  for (std::uint64_t index = 0; index < 20; ++index) {
    FillerText text(kTwo, Draws(1, "x", index));
    const std::string begun(text.first(12));
    CHECK(begun.find("Six.") != std::string::npos);
    CHECK(begun.find("Four-five") != std::string::npos);  // leading white space is layout
    CHECK(begun.find("\n\n\n") == std::string::npos);
  }
}

TEST_CASE("filler: no cut splits a character or a word") {
  const std::vector<Passage> text{{"u", "\xc3\xa9t\xc3\xa9 caf\xc3\xa9"}};  // été café
  FillerText filler(text, Draws(1, "x", 0));
  for (std::uint64_t cuts = 1; cuts < 20; ++cuts) {
    const std::string_view part = filler.first(cuts);
    CHECK(static_cast<unsigned char>(part.back()) != 0xc3);
    CHECK_FALSE(part.ends_with("ca"));
  }
}

TEST_CASE("filler: text without a word is refused") {
  const std::vector<Passage> none, blank{{"blank.txt", " \n\n \n"}};
  CHECK_THROWS_AS(FillerText(none, Draws(1, "x", 0)), kvsim::Error);
  CHECK_THROWS_WITH(FillerText(blank, Draws(1, "x", 0)), Catch::Contains("blank.txt"));
}

TEST_CASE("weave: after the last sentence that ends before the depth") {
  const std::string text = "Ab cd. Ef gh. Ij kl";  // 19 bytes; sentences end at 6 and 13
  const auto at = [&](double depth) { return woven(text, {{depth, " X", Role::evidence}}); };
  CHECK(at(0.99) == "Ab cd. Ef gh.[ X] Ij kl");
  CHECK(at(13.1 / 19) == "Ab cd. Ef gh.[ X] Ij kl");
  CHECK(at(12.9 / 19) == "Ab cd.[ X] Ef gh. Ij kl");
  CHECK(at(6.1 / 19) == "Ab cd.[ X] Ef gh. Ij kl");
  CHECK(at(0.0) == "Ab cd.[ X] Ef gh. Ij kl");  // no sentence ends before, so the first one after
}

TEST_CASE("weave: without a sentence, after a word") {
  CHECK(woven("Ab cd ef", {{0.7, " X", Role::evidence}}) == "Ab cd[ X] ef");
  CHECK(woven("Ab cd ef", {{0.1, " X", Role::evidence}}) == "[ X]Ab cd ef");
  CHECK(woven("", {{0.5, " X", Role::evidence}}) == "[ X]");
}

TEST_CASE("weave: insertions are ordered by place, those of one place keep their order") {
  CHECK(woven("Ab. Cd. Ef",
              {{0.99, " 1", Role::evidence}, {0.4, " 2", Role::context}, {0.95, " 3", Role::evidence}}) ==
        "Ab. 2 Cd.[ 1 3] Ef");
}

TEST_CASE("the built-in passages are the files of passages/, byte for byte") {
  CHECK(builtin_passages().size() == 6);
  for (const Passage& passage : builtin_passages()) {
    const std::string file =
        kvsim::test::bytes_of(KVSIM_SOURCE_DIR "/traces/workloads/passages/" + passage.name + ".txt");
    CHECK_FALSE(file.empty());
    CHECK(passage.text == file);
  }
}

}  // namespace kvsim::workload::test_filler_text
