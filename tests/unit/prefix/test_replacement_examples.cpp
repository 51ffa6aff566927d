// What stays under each replacement in a stream that is short enough to be worked out by hand. A letter is a
// prompt of one block unless the example says otherwise.
#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/requests/prefix/block_cache.hpp"

namespace kvsim::test_replacement_examples {

using policy::Block;
using policy::kNever;

namespace {

/// What an example says of one request beside its block.
struct Asked {
  double time_s = 0;
  std::uint32_t category = kNever;
  std::int32_t priority = 0;
  std::string waiting{};  ///< prompts of one block, the next first
  std::uint32_t next = kNever;
};

/// One cache over the blocks A to Z, none of which has blocks before it.
class Letters {
 public:
  Letters(const std::string& text, std::size_t capacity, std::size_t categories = 0)
      : cache_(policy::parse_replacement(text, policy::builtin()), {.blocks = 26,
                                                                    .capacity = capacity,
                                                                    .parents = parents_,
                                                                    .depths = depths_,
                                                                    .categories = categories}) {}

  /// The blocks that are resident after a request of one block.
  std::string after(char letter, const Asked& asked) {
    const Block path[] = {block(letter)};
    const std::uint32_t next[] = {asked.next};
    std::vector<Block> blocks;
    for (const char of : asked.waiting) blocks.push_back(block(of));
    std::vector<std::span<const Block>> waiting;
    for (const Block& of : blocks) waiting.emplace_back(&of, 1);
    cache_.advance(asked.time_s);
    cache_.request({.number = number_++,
                    .time_s = asked.time_s,
                    .category = asked.category,
                    .priority = asked.priority,
                    .waiting = waiting,
                    .next_use = next,
                    .path = path});
    std::string out;
    for (Block of = 0; of < 26; ++of)
      if (cache_.resident(of)) out += static_cast<char>('A' + of);
    return out;
  }
  /// The same after each of several requests, one a second: "A AB B".
  std::string after(const std::string& requests) {
    std::string out;
    for (const char letter : requests)
      if (letter != ' ') out += (out.empty() ? "" : " ") + after(letter, {.time_s = double(number_)});
    return out;
  }

 private:
  static Block block(char letter) { return static_cast<Block>(letter - 'A'); }

  std::vector<Block> parents_ = std::vector<Block>(26, policy::kNoBlock);
  std::vector<std::uint32_t> depths_ = std::vector<std::uint32_t>(26, 0);
  prefix::BlockCache cache_;
  std::uint64_t number_ = 0;
};

}  // namespace

TEST_CASE("fifo and lru by hand: use counts for the one, not for the other") {
  CHECK(Letters("fifo", 2).after("A B A C") == "A AB AB BC");
  CHECK(Letters("lru", 2).after("A B A C") == "A AB AB AC");
}

TEST_CASE("slru by hand: two of four blocks are protected") {
  // A and B are protected by their second use. E finds C as the oldest on probation. D's second use protects
  // it, and A falls back behind E: F finds E, G finds A.
  CHECK(Letters("slru(protected=0.5)", 4).after("A B A B C D E D F G") ==
        "A AB AB AB ABC ABCD ABDE ABDE ABDF BDFG");
}

TEST_CASE("lfu by hand: with age what was popular leaves in time") {
  // A has a value of 3. B leaves with 1, so that C comes with 2; it leaves with 2, so that D comes with 3. A,
  // of the same value and used before, leaves for E.
  CHECK(Letters("lfu", 2).after("A A A B C D E") == "A A A AB AC AD DE");
  CHECK(Letters("lfu(age=false)", 2).after("A A A B C D E") == "A A A AB AC AD AE");
}

TEST_CASE("arc by hand: a miss on what just left moves the border") {
  // T2 = A, T1 = B. C: T1 is larger than p = 0, B leaves to B1. B is remembered: p becomes 1, T1 = C is not
  // larger, and A leaves T2 to B2; B enters T2. A is remembered: p falls to 0, C leaves.
  CHECK(Letters("arc", 2).after("A A B C B A") == "A A AB AC BC AB");
}

TEST_CASE("sieve by hand: the hand goes on where it stopped") {
  // D: the hand forgives A and evicts B. E and F: it goes on with C and D; A, the oldest, is behind it.
  CHECK(Letters("sieve", 3).after("A B C A D E F") == "A AB ABC ABC ACD ADE AEF");
}

TEST_CASE("s3_fifo by hand: used twice in the small queue, or remembered, is the way to the main one") {
  // Four blocks fit, of which the small queue should have one, and three names are remembered. E: A was used
  // twice and goes to the main queue, B leaves and is remembered. B therefore enters the main queue, C
  // leaves. F and G: D and E leave; I: F, used twice in the meantime, goes to the main queue, G leaves.
  CHECK(Letters("s3_fifo", 4).after("A B C D A A E B F G F F I") ==
        "A AB ABC ABCD ABCD ABCD ACDE ABDE ABEF ABFG ABFG ABFG ABFI");
}

TEST_CASE("w_tinylfu by hand: the more popular of two blocks has the place") {
  // The window has one block of four; A, B and C have gone through it when D comes. E: D must leave the
  // window and was used no more often than A, the oldest on probation, so that D leaves the cache. F: E was
  // used more often than A, which leaves. B's second use protects it. G: F was used no more often than C, now
  // the oldest on probation, and leaves.
  CHECK(Letters("w_tinylfu", 4).after("A B C D E E F B G") == "A AB ABC ABCD ABCE ABCE BCEF BCEF BCEG");
}

TEST_CASE("ttl by hand: a block leaves when it was not used for its time, and before that as under lru") {
  Letters ttl("ttl(seconds=10)", 2);
  CHECK(ttl.after('A', {.time_s = 0}) == "A");
  CHECK(ttl.after('B', {.time_s = 4}) == "AB");
  // Ten seconds are not more than ten.
  CHECK(ttl.after('A', {.time_s = 10}) == "AB");
  // B was used 11 seconds ago.
  CHECK(ttl.after('A', {.time_s = 15}) == "A");
  CHECK(ttl.after('C', {.time_s = 16}) == "AC");
  CHECK(ttl.after('D', {.time_s = 17}) == "CD");
}

TEST_CASE("priority by hand: the lowest leaves, of equal ones the one not used for longest") {
  Letters priority("priority", 3);
  CHECK(priority.after('A', {.priority = 5}) == "A");
  CHECK(priority.after('B', {.priority = 1}) == "AB");
  CHECK(priority.after('C', {.priority = 1}) == "ABC");
  CHECK(priority.after('B', {.priority = 1}) == "ABC");
  CHECK(priority.after('D', {.priority = 7}) == "ABD");
  // A's last request had the priority 0.
  CHECK(priority.after('A', {.priority = 0}) == "ABD");
  CHECK(priority.after('E', {.priority = 0}) == "BDE");
}

TEST_CASE("category by hand: what its category uses again is kept, though it is older") {
  // Requests of category 0 come back after two seconds, those of 1 never. At 6 s, category 0 has three uses
  // and two reuses after 2 s each: a chance of (2 + 1) / (3 + 1), times exp(-1/2 * 2) for the 2 s since A's
  // last use; 0.28. Category 1 has one use: a chance of 1 / (1 + 1). A leaves.
  Letters soon("category(life=1000000)", 2, 2);
  CHECK(soon.after('A', {.time_s = 0, .category = 0}) == "A");
  CHECK(soon.after('A', {.time_s = 2, .category = 0}) == "A");
  CHECK(soon.after('A', {.time_s = 4, .category = 0}) == "A");
  CHECK(soon.after('B', {.time_s = 5, .category = 1}) == "AB");
  CHECK(soon.after('C', {.time_s = 6, .category = 1}) == "BC");
  // A second sooner the factor is exp(-1/2) and A's chance 0.45; category 1 has three uses by then, none of
  // which came again, a chance of 1 / (3 + 1): B, the oldest of them, leaves.
  Letters later("category(life=1000000)", 2, 2);
  CHECK(later.after('A', {.time_s = 0, .category = 0}) == "A");
  CHECK(later.after('A', {.time_s = 2, .category = 0}) == "A");
  CHECK(later.after('A', {.time_s = 4, .category = 0}) == "A");
  CHECK(later.after('D', {.time_s = 4, .category = 1}) == "AD");
  CHECK(later.after('E', {.time_s = 4, .category = 1}) == "AE");
  CHECK(later.after('B', {.time_s = 4, .category = 1}) == "AB");
  CHECK(later.after('C', {.time_s = 5, .category = 1}) == "AC");
}

TEST_CASE("queue_lru by hand: what waits is spared, the next one longest") {
  Letters queue("queue_lru(window=2)", 3);
  CHECK(queue.after("A B C") == "A AB ABC");
  // A waits: B is the oldest that nobody waits for.
  CHECK(queue.after('D', {.time_s = 3, .waiting = "A"}) == "ACD");
  // A is next and C waits behind it: D leaves, though it is the newest. Then C leaves before A.
  CHECK(queue.after('E', {.time_s = 4, .waiting = "AC"}) == "ACE");
  CHECK(queue.after('F', {.time_s = 5}) == "AEF");
}

TEST_CASE("gdsf and hpt by hand: a deep block is dearer, and only the one ages") {
  // A has B behind it; computing a first block takes one second, a second block three.
  const std::vector<Block> parents{policy::kNoBlock, 0, policy::kNoBlock, policy::kNoBlock, policy::kNoBlock};
  const std::vector<std::uint32_t> depths{0, 1, 0, 0, 0};
  const std::vector<double> seconds{1, 3};
  const auto after = [&](const std::string& text) {
    prefix::BlockCache cache(
        policy::parse_replacement(text, policy::builtin()),
        {.blocks = 5, .capacity = 2, .parents = parents, .depths = depths, .seconds = seconds});
    std::string out;
    std::uint64_t number = 0;
    for (const std::vector<Block>& path : std::vector<std::vector<Block>>{{0, 1}, {2}, {3}, {4}}) {
      cache.request({.number = number++, .path = path});
      for (Block block = 0; block < 5; ++block)
        if (cache.resident(block)) out += static_cast<char>('A' + block);
      out += ' ';
    }
    return out;
  };
  // A is worth 1, B 3. C displaces A, and comes with 1 + 1; D displaces C, and comes with 2 + 1. B is worth
  // as much and was used before: E displaces it. Without age C, D and E come with 1 each.
  CHECK(after("gdsf") == "AB BC BD DE ");
  CHECK(after("hpt") == "AB BC BD BE ");
}

TEST_CASE("radix nodes by hand: a prompt that turns off splits a node, a leaf leaves as a whole") {
  // A ... E follow one another; F follows B, and G is a first block.
  const std::vector<Block> parents{policy::kNoBlock, 0, 1, 2, 3, 1, policy::kNoBlock};
  const std::vector<std::uint32_t> depths{0, 1, 2, 3, 4, 2, 0};
  const auto after = [&](const std::string& text, const std::vector<std::vector<Block>>& paths) {
    prefix::BlockCache cache(
        policy::parse_replacement(text, policy::builtin()),
        {.blocks = 7, .capacity = 6, .parents = parents, .depths = depths, .nodes = true});
    std::string out;
    std::uint64_t number = 0;
    for (const std::vector<Block>& path : paths) {
      cache.request({.number = number++, .path = path});
      for (Block block = 0; block < 7; ++block)
        if (cache.resident(block)) out += static_cast<char>('A' + block);
      out += ' ';
    }
    return out;
  };
  // ABCDE is one node. ABF splits it into AB and CDE, and hangs F behind AB: six blocks, all that fit. G
  // needs one: of the leaves CDE and F the former was used before, and leaves, three blocks for one. Then
  // there is room: ABC hangs C behind AB.
  CHECK(after("lru", {{0, 1, 2, 3, 4}, {0, 1, 5}, {6}, {0, 1, 5}, {0, 1, 2}}) ==
        "ABCDE ABCDEF ABFG ABFG ABCFG ");
  // ABF needs a block: of the leaves CDE and G the latter was used before, and less often; but per block CDE
  // is worth (2 + 1) / 3 and G (1 + 1) / 1.
  const std::vector<std::vector<Block>> paths{{0, 1, 2, 3, 4}, {6}, {0, 1, 2, 3, 4}, {0, 1, 5}};
  CHECK(after("lru", paths) == "ABCDE ABCDEG ABCDEG ABCDEF ");
  CHECK(after("lfu", paths) == "ABCDE ABCDEG ABCDEG ABCDEF ");
  CHECK(after("hpt", paths) == "ABCDE ABCDEG ABCDEG ABFG ");
  // CDE was stored before G.
  CHECK(after("fifo", paths) == "ABCDE ABCDEG ABCDEG ABFG ");
}

TEST_CASE("opt by hand: what is needed last leaves, or does not come") {
  // The stream A B C A B, of which opt knows the rest at any time. C is needed never and left out.
  Letters opt("opt", 2);
  CHECK(opt.after('A', {.next = 3}) == "A");
  CHECK(opt.after('B', {.next = 4}) == "AB");
  CHECK(opt.after('C', {}) == "AB");
  CHECK(opt.after('A', {}) == "AB");
  // D is needed next, A no more.
  CHECK(opt.after('D', {.next = 6}) == "BD");
}

TEST_CASE("lhd by hand: what hits soon if ever is kept for so long and no longer") {
  // Two blocks fit; densities are learnt after six accesses, decay is none, and 64 draws see both.
  Letters lhd("lhd(period=6,decay=1,sample=64)", 2);
  // Access 1 hits A at age 1, access 3 at age 2. Blocks without a hit are of class 0; A, after hits at the
  // ages 2 and 1, of class 13, since 3 * 2^13 is the first to reach 20,000. At access 4, A of age 1 has a
  // density of 14 / 2, B of age 2 one of 1 / 3: B leaves. Access 5 hits A at age 2.
  CHECK(lhd.after("A A B A C A") == "A A AB AB AC AC");
  // Of class 0 a hit at age 1 and an eviction at age 2 are known: density 1 / (1 * 2 + 1 * 3) at age 0, 1 /
  // (1
  // + 2) at age 1, 0 from then on. Of class 13, to which A belongs still after ages 2 and 2, a hit at age 2:
  // 1/3, 1/2, 1 at ages 0, 1, 2, then 0. D comes: A of age 1 has 1/2, C of age 2 has 0. E comes: A of age 2
  // has 1, D of age 1 has 1/3. F comes: A of age 3 has 0, E of age 1 has 1/3.
  CHECK(lhd.after("D E F") == "AD AE EF");
}

}  // namespace kvsim::test_replacement_examples
