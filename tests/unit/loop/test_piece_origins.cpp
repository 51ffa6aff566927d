// Which runs the pieces of a prompt are taken from, and from where in them.
#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "analysis/loop/piece_origins.hpp"
#include "sim/base/error.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::analysis::test_piece_origins {
namespace {

using Ids = std::vector<std::int32_t>;

/// Tokens 0 to 9; 3 stands between documents, 8 and 9 are the question.
std::vector<PieceOrigin> origins(const std::string& way, std::uint64_t lead = 1, const Ids& before = {}) {
  Ids ids(10);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<workload::ByteSpan> documents{{1, 3}, {4, 6}, {6, 8}};
  return piece_origins(ids, before, documents, lead, sim::parse_assembly(way, "test"), "item");
}

}  // namespace

TEST_CASE("pieces come from their own runs, from the reversed prompt or from the one before an edit") {
  for (const std::string way : {"none", "epic:1", "cachecraft:1", "pie:1", "pie:2", "pie:3"})
    for (const PieceOrigin& origin : origins(way)) {
      CAPTURE(way);
      // What is taken is what stands there.
      for (std::uint64_t position = origin.piece.begin; position < origin.piece.end; ++position)
        CHECK(origin.ids.at(origin.piece.lead + position - origin.piece.begin) ==
              static_cast<std::int32_t>(position));
    }
  const std::vector<PieceOrigin> alone = origins("none");
  REQUIRE(alone.size() == 4);
  CHECK(alone[0].ids == Ids{0});
  CHECK(alone[1].ids == Ids{0, 1, 2});
  CHECK(alone[3].ids == Ids{0, 6, 7});
  CHECK(origins("none", 0)[3].ids == Ids{6, 7});
  const std::vector<PieceOrigin> reversed = origins("cachecraft:1");
  REQUIRE(reversed.size() == 4);
  for (const PieceOrigin& origin : reversed) CHECK(origin.ids == Ids{0, 6, 7, 3, 4, 5, 1, 2});
  CHECK(reversed[1].piece.lead == 6);
  const std::vector<PieceOrigin> edit = origins("pie:2");
  REQUIRE(edit.size() == 2);
  CHECK(edit[1].ids == Ids{0, 1, 2, 3, 6, 7, 8, 9});
  CHECK(edit[1].piece.begin == 6);
  CHECK(edit[1].piece.end == 9);
  CHECK(edit[1].piece.lead == 4);
  CHECK_THROWS_AS(origins("pie:4"), Error);
}

TEST_CASE("an edit leaves what both versions begin and end with") {
  const auto places = [](const Ids& before) {
    std::vector<std::array<std::uint64_t, 3>> out;  // begin, end, where it began before
    for (const PieceOrigin& origin : origins("pie", 1, before)) {
      CHECK(origin.ids == before);
      out.push_back({origin.piece.begin, origin.piece.end, origin.piece.lead});
    }
    return out;
  };
  using Places = std::vector<std::array<std::uint64_t, 3>>;
  // The last token, 9, is computed whatever came before.
  CHECK(places({0, 1, 2, 3, 77, 78, 4, 5, 6, 7, 8, 9}) == Places{{0, 4, 0}, {4, 9, 6}});  // deleted
  CHECK(places({0, 1, 2, 7, 8, 9}) == Places{{0, 3, 0}, {7, 9, 3}});                      // inserted
  CHECK(places({0, 1, 2, 77, 4, 5, 6, 7, 8, 9}) == Places{{0, 3, 0}, {4, 9, 4}});         // replaced
  CHECK(places({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == Places{{0, 9, 0}});                     // nothing
  CHECK(places({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) == Places{{0, 9, 0}});  // at the end: none ends as it did
  CHECK(places({2, 3, 4, 5, 6, 7, 8, 9}) == Places{{2, 9, 0}});            // put before
  CHECK(places({0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == Places{{0, 1, 0}, {1, 9, 2}});  // no token serves twice
  CHECK(places({77}).empty());
  CHECK_THROWS_WITH(origins("pie"), Catch::Matchers::Contains("no earlier version"));
}

TEST_CASE("ways that take pieces from the same runs") {
  const auto same = [](const char* a, const char* b) {
    return same_origins(sim::parse_assembly(a, "test"), sim::parse_assembly(b, "test"));
  };
  CHECK(same("none", "cacheblend:5%"));
  CHECK(same("pie:1", "pie:1"));
  CHECK_FALSE(same("pie:1", "pie:2"));
  CHECK_FALSE(same("none", "pie:1"));
  CHECK_FALSE(same("cachecraft:1", "none"));
  CHECK_FALSE(same("cachecraft:1", "cachecraft:0.5"));
}

TEST_CASE("runs of documents are made once, and those used longest ago are forgotten") {
  const trace::MemoryTrace run = test::random_trace({.layers = 1, .kv_heads = 1, .prompt = 3, .decode = 0});
  int made = 0;
  DocumentRuns runs;
  const auto find = [&](Ids ids, Elem elem = Elem::f32) {
    return runs.find({std::move(ids), {1}, elem, 512}, [&] {
      ++made;
      return run;
    });
  };
  const DocumentRuns::Run one = find({1, 2, 3});
  CHECK(find({1, 2, 3}) == one);
  CHECK(made == 1);
  find({1, 2, 3}, Elem::bf16);
  find({4, 5, 6});
  CHECK(made == 3);
  find({1, 2, 3});
  runs.keep(6);  // the latest two
  find({1, 2, 3});
  find({4, 5, 6});
  CHECK(made == 3);
  find({1, 2, 3}, Elem::bf16);
  CHECK(made == 4);
}

}  // namespace kvsim::analysis::test_piece_origins
