// Tests the selection of tokens by number or text: a worked example, a tree, refusals, and a slow search
// along every path.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "sim/base/error.hpp"
#include "traces/format/token_selection.hpp"

namespace kvsim::test_token_selection {

using trace::kEveryOccurrence;
using Tokens = std::vector<std::uint64_t>;

namespace {

struct Span {
  std::int32_t parent;
  trace::Phase phase;
  std::vector<std::string> tokens;
};

/// A header with the fields that select_tokens reads: segments, the segment of each token, and text.
trace::Header spelled(const std::vector<Span>& spans) {
  trace::Header header;
  header.text_offset = {0};
  for (std::size_t s = 0; s < spans.size(); ++s) {
    trace::Segment segment;
    segment.parent = spans[s].parent;
    segment.begin = header.token_id.size();
    segment.count = static_cast<std::uint32_t>(spans[s].tokens.size());
    segment.phase = spans[s].phase;
    header.segments.push_back(segment);
    for (const std::string& text : spans[s].tokens) {
      header.token_id.push_back(0);
      header.token_segment.push_back(static_cast<std::uint32_t>(s));
      header.text_bytes += text;
      header.text_offset.push_back(header.text_bytes.size());
    }
  }
  return header;
}

trace::Header example() {
  return spelled(
      {{-1, trace::Phase::prompt, {"<s>", "The", " co", "de", " is", " 47", "21", ".", " The", " code", "?"}},
       {0, trace::Phase::decode, {" 47", "21"}}});
}

Tokens select(const trace::Header& header, const std::string& said,
              std::optional<std::uint64_t> occurrence = std::nullopt) {
  return trace::select_tokens(header, said, occurrence, "--evidence");
}

/// Spells out every path of prompt segments and tries every place. Returns the tokens of each occurrence,
/// ordered by its end.
std::vector<Tokens> slow_occurrences(const trace::Header& header, const std::string& text) {
  std::set<std::pair<std::uint64_t, Tokens>> found;
  for (std::size_t leaf = 0; leaf < header.segments.size(); ++leaf) {
    Tokens owners;
    std::string bytes;
    std::vector<std::size_t> path;
    for (auto s = static_cast<std::int32_t>(leaf); s >= 0;
         s = header.segments[static_cast<std::size_t>(s)].parent)
      path.insert(path.begin(), static_cast<std::size_t>(s));
    for (const std::size_t s : path) {
      const trace::Segment& segment = header.segments[s];
      for (std::uint64_t token = segment.begin; token < segment.begin + segment.count; ++token)
        for (std::uint64_t at = header.text_offset[token]; at < header.text_offset[token + 1]; ++at) {
          bytes += segment.phase == trace::Phase::prompt ? header.text_bytes[at] : '\0';
          owners.push_back(token);
        }
    }
    for (std::size_t at = 0; at + text.size() <= bytes.size(); ++at) {
      if (bytes.compare(at, text.size(), text) != 0) continue;
      std::set<std::uint64_t> tokens(owners.begin() + static_cast<std::ptrdiff_t>(at),
                                     owners.begin() + static_cast<std::ptrdiff_t>(at + text.size()));
      // Occurrences are identified by their end in bytes of the file, because two may lie within the same
      // tokens.
      const std::uint64_t last = owners[at + text.size() - 1];
      std::uint64_t end = header.text_offset[last];
      for (std::size_t back = at + text.size(); back-- > 0 && owners[back] == last;) ++end;
      found.insert({end, Tokens(tokens.begin(), tokens.end())});
    }
  }
  std::vector<Tokens> out;
  for (const auto& [end, tokens] : found) out.push_back(tokens);
  return out;
}

}  // namespace

TEST_CASE("text selects the tokens that spell a part of it, numbers select tokens") {
  const trace::Header header = example();
  CHECK(select(header, "de is 4") == Tokens{3, 4, 5});
  CHECK(select(header, "<s>The") == Tokens{0, 1});
  CHECK(select(header, "text:4721") == Tokens{5, 6});
  CHECK(select(header, "text:72") == Tokens{5, 6});
  CHECK(select(header, "3") == Tokens{3});
  CHECK(select(header, "3:6") == Tokens{3, 4, 5});
  CHECK(select(header, "9,3:5,4:6,0") == Tokens{0, 3, 4, 5, 9});
  CHECK(select(header, "0:11").size() == 11);
}

TEST_CASE("text in several places needs an occurrence") {
  const trace::Header header = example();
  CHECK(select(header, " code", 1) == Tokens{2, 3});
  CHECK(select(header, " code", 2) == Tokens{9});
  CHECK(select(header, " code", kEveryOccurrence) == Tokens{2, 3, 9});
  CHECK(select(header, "?", 7) == Tokens{10});  // the only occurrence
  CHECK_THROWS_WITH(select(header, " code"), Catch::Contains("\" code\" is in the prompt 2 times") &&
                                                 Catch::Contains("tokens 2 and 9") &&
                                                 Catch::Contains("--occurrence"));
  CHECK_THROWS_WITH(select(header, " code", 3),
                    Catch::Contains("--occurrence: \" code\" is in the prompt 2 times"));
}

TEST_CASE("anything that is not a token of the prompt is refused") {
  const trace::Header header = example();
  for (const auto& [said, message] : std::vector<std::pair<std::string, std::string>>{
           {"The cat", "\"The cat\" is not in the prompt"},
           {"? 47", "is not in the prompt"},  // extends into the answer
           {"", "is empty"},
           {"text:", "is empty"},
           {"5:5", "holds no token"},
           {"7:3", "holds no token"},
           {"13", "beyond the trace's 13 tokens"},
           {"0:99999999999", "beyond the trace's 13 tokens"},
           {"10:12", "token 11 belongs to an answer"},
           {"1,", "names no tokens"},
           {":5", "names no tokens"},
           {"5:", "names no tokens"},
           {"1:2:3", "names no tokens"},
           {"99999999999999999999999", "names no tokens"}}) {
    INFO(said);
    try {
      select(header, said);
      FAIL("selected something");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK_THAT(error.what(), Catch::StartsWith("--evidence: ") && Catch::Contains(message));
    }
  }
  trace::Header mute = example();
  mute.text_offset.clear();
  mute.text_bytes.clear();
  CHECK_THROWS_WITH(select(mute, "code"),
                    Catch::Contains("stores no text") && Catch::Contains("token numbers"));
  CHECK(select(mute, "1:3") == Tokens{1, 2});
}

TEST_CASE("in a tree, text is found once in a shared prefix, and across the branching point") {
  const trace::Header header = spelled({{-1, trace::Phase::prompt, {"a b", "ox ", "of"}},  // 0 1 2
                                        {0, trace::Phase::prompt, {" tea", "?"}},          // 3 4
                                        {1, trace::Phase::decode, {" of", " tea"}},        // 5 6
                                        {0, trace::Phase::prompt, {" pears", "?"}},        // 7 8
                                        {2, trace::Phase::prompt, {" tea", " of"}}});      // 9 10
  CHECK(select(header, "box") == Tokens{0, 1});
  CHECK(select(header, "of pears") == Tokens{2, 7});
  CHECK(select(header, "box of tea") == Tokens{0, 1, 2, 3});
  CHECK(select(header, "?", kEveryOccurrence) == Tokens{4, 8});
  CHECK_THROWS_WITH(select(header, "of tea?p"), Catch::Contains("not in the prompt"));
  CHECK(select(header, "of tea") == Tokens{2, 3});  // the answer's text does not count
}

TEST_CASE("random trees agree with a search of every path") {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return random() % n; };
  std::size_t single = 0, several = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Span> spans;
    for (std::size_t s = 0; s < 1 + below(6); ++s) {
      Span span{s == 0 ? -1 : static_cast<std::int32_t>(below(s)), trace::Phase::prompt, {}};
      if (s > 0 && below(3) == 0) span.phase = trace::Phase::decode;
      for (std::size_t t = 0; t < 1 + below(5); ++t)
        span.tokens.push_back(std::string("abcd").substr(below(4), below(3)));
      spans.push_back(span);
    }
    const trace::Header header = spelled(spans);
    std::string text;
    while (text.empty() || below(3) > 0) text += "abcd"[below(4)];
    const std::vector<Tokens> expected = slow_occurrences(header, text);
    if (expected.empty()) {
      CHECK_THROWS_WITH(select(header, text), Catch::Contains("not in the prompt"));
      continue;
    }
    std::set<std::uint64_t> all;
    for (const Tokens& tokens : expected) all.insert(tokens.begin(), tokens.end());
    CHECK(select(header, text, kEveryOccurrence) == Tokens(all.begin(), all.end()));
    if (expected.size() == 1) {
      CHECK(select(header, text) == expected[0]);
      ++single;
      continue;
    }
    CHECK_THROWS_WITH(select(header, text), Catch::Contains(std::to_string(expected.size()) + " times"));
    std::multiset<Tokens> each;
    for (std::size_t n = 1; n <= expected.size(); ++n) each.insert(select(header, text, n));
    CHECK(each == std::multiset<Tokens>(expected.begin(), expected.end()));
    ++several;
  }
  CHECK(single > 20);
  CHECK(several > 20);
}

}  // namespace kvsim::test_token_selection
