// What stays under each replacement in a stream that is short enough to be worked out by hand. A letter is a
// prompt of one block unless the example says otherwise.
#include <catch2/catch.hpp>
#include <sstream>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/prefix/block_cache.hpp"

using namespace kvsim;
using policy::Block;

namespace {

/// One cache over the blocks A to Z, none of which has blocks before it.
class Letters {
 public:
  Letters(const std::string& text, std::size_t capacity)
      : cache_(policy::parse_replacement(text, policy::builtin()),
               {.blocks = 26, .capacity = capacity, .parents = parents_, .depths = depths_}) {}

  /// The blocks that are resident after each request of one block: "A AB B".
  std::string after(const std::string& requests) {
    std::string out;
    for (const char letter : requests) {
      if (letter == ' ') continue;
      const Block path[] = {static_cast<Block>(letter - 'A')};
      cache_.advance(static_cast<double>(number_));
      cache_.request({.number = number_, .time_s = static_cast<double>(number_), .path = path});
      ++number_;
      out += out.empty() ? "" : " ";
      for (Block block = 0; block < 26; ++block)
        if (cache_.resident(block)) out += static_cast<char>('A' + block);
    }
    return out;
  }

 private:
  std::vector<Block> parents_ = std::vector<Block>(26, policy::kNoBlock);
  std::vector<std::uint32_t> depths_ = std::vector<std::uint32_t>(26, 0);
  prefix::BlockCache cache_;
  std::uint64_t number_ = 0;
};

}  // namespace

TEST_CASE("lhd by hand: what hits soon if ever is kept for so long and no longer") {
  // Two blocks fit; densities are learnt after six accesses, decay is none, and 64 draws see both.
  Letters lhd("lhd(period=6,decay=1,sample=64)", 2);
  // Access 1 hits A at age 1, access 3 at age 2. Blocks without a hit are of class 0; A, after hits at the
  // ages 2 and 1, of class 13, since 3 * 2^13 is the first to reach 20,000. At access 4, A of age 1 has a
  // density of 14 / 2, B of age 2 one of 1 / 3: B leaves. Access 5 hits A at age 2.
  CHECK(lhd.after("A A B A C A") == "A A AB AB AC AC");
  // Of class 0 a hit at age 1 and an eviction at age 2 are known: density 1 / (1 + 2 * 2) at age 0, 1 / (1 +
  // 2) at age 1, 0 from then on. Of class 13, to which A belongs still after ages 2 and 2, a hit at age 2:
  // 1/3, 1/2, 1 at ages 0, 1, 2, then 0. D comes: A of age 1 has 1/2, C of age 2 has 0. E comes: A of age 2
  // has 1, D of age 1 has 1/3. F comes: A of age 3 has 0, E of age 1 has 1/3.
  CHECK(lhd.after("D E F") == "AD AE EF");
}
