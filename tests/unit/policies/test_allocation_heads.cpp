// Allocations by known properties of heads: retrieval_heads, headkv and fixed, with tables from files.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_heads {

using Catch::Contains;

namespace {

constexpr std::size_t kAll = kNeverEvict;
using Matrix = std::vector<std::vector<double>>;

/// Files that exist only in a test.
class Files final : public Tables {
 public:
  explicit Files(Matrix matrix) : matrix_(std::move(matrix)) {}
  std::vector<float> row(std::string_view, std::string_view, int, int) const override { return {}; }
  Matrix matrix(std::string_view file) const override {
    CHECK(file == "heads.json");
    return matrix_;
  }

 private:
  Matrix matrix_;
};

AllocationRequest request_of(std::size_t n_layers, std::size_t heads, std::size_t prompt, std::size_t budget,
                             std::size_t floor = 1) {
  return {.n_layers = n_layers, .n_kv_heads = heads, .prompt = prompt, .budget = budget, .floor = floor};
}

Tokens with_file(const std::string& allocation, AllocationRequest request, const Matrix& matrix) {
  const Files files(matrix);
  request.tables = &files;
  return allocate(allocation, request);
}

}  // namespace

TEST_CASE("fixed(as=tokens) gives what the list says, at most the prompt, whatever the budget") {
  AllocationRequest request = request_of(3, 2, 100, 40);
  request.floor = 8;
  // 8 + 10.5, 8 + 4.5 and the prompt; of equal remainders the first layer's is rounded up.
  CHECK(allocate("fixed(shares=10.5:4.5:200,as=tokens)", request) == Tokens{19, 19, 12, 12, 100, 100});
  request.budget = 9;
  CHECK(allocate("fixed(shares=10.5:4.5:200,as=tokens)", request) == Tokens{19, 19, 12, 12, 100, 100});
  const Composition composition = parse_composition("h2o+fixed(shares=1:2:3,as=tokens)", builtin());
  CHECK(composition.allocation.own_total());
  CHECK(composition.allocation.inexact());
}

TEST_CASE("retrieval heads by budget, worked by hand") {
  // Four heads, prompt 100, streaming heads of 4 + 6 tokens. 40 per head are 160 tokens: (40 - 10) * 4 / (100
  // - 10) = 1.33, so one head keeps all and the other 60 are 20 for each.
  AllocationRequest request = request_of(2, 2, 100, 40);
  request.profiles = {{.1}, {.4}, {.3}, {.4}};
  const std::string duo = "retrieval_heads(sinks=4,recent=6)";
  CHECK(allocate(duo, request) == Tokens{20, kAll, 20, 20});
  // 56 per head are 224: two heads, and 24 for the rest. Equal scores: the earlier head.
  request.budget = 56;
  CHECK(allocate(duo, request) == Tokens{12, kAll, 12, kAll});
  request.budget = 55;  // (55 - 10) * 4 / 90 is two exactly
  CHECK(allocate(duo, request) == Tokens{10, kAll, 10, kAll});
  request.budget = 54;
  CHECK(allocate(duo, request) == Tokens{39, kAll, 39, 38});
  // With less than streaming needs, all heads stream with what there is.
  request.budget = 7;
  CHECK(allocate(duo, request) == Tokens{7, 7, 7, 7});
  // Lanes that share a set are ranked by their mean: .25 and .35.
  request.budget = 60;
  request.shared = true;
  CHECK(allocate(duo, request) == Tokens{20, 20, kAll, kAll});
}

TEST_CASE("a share of retrieval heads decides the total itself") {
  AllocationRequest request = request_of(2, 2, 100, 40);
  request.profiles = {{.1}, {.4}, {.3}, {.2}};
  CHECK(allocate("retrieval_heads(sinks=4,recent=6,retrieval=0.5)", request) == Tokens{10, kAll, kAll, 10});
  // 0.6 of four: round(1.6) = 2 stream. 0.9: round(0.4) = 0.
  CHECK(allocate("retrieval_heads(sinks=4,recent=6,retrieval=0.6)", request) == Tokens{10, kAll, kAll, 10});
  CHECK(allocate("retrieval_heads(sinks=4,recent=6,retrieval=0.9)", request) == Tokens(4, kAll));
  // Every head holds a short prompt.
  request.prompt = 8;
  request.budget = 5;
  CHECK(allocate("retrieval_heads(sinks=4,recent=6,retrieval=0.5)", request) == Tokens{8, kAll, kAll, 8});
}

TEST_CASE("recent tokens of streaming heads may be a share of long prompts") {
  // Of 40 tokens a fifth are 8, of 20 there are 4, fewer than the six that are asked.
  const auto streaming = [](std::size_t prompt) {
    AllocationRequest request = request_of(1, 4, prompt, 12);
    request.profiles = {{0.1}, {0.4}, {0.3}, {0.2}};
    return allocate("retrieval_heads(sinks=4,recent=6,recent_share=0.2,retrieval=0.5)", request)[0];
  };
  CHECK(streaming(40) == 4 + 8);
  CHECK(streaming(20) == 4 + 6);
}

TEST_CASE("retrieval heads are measured by attention outside sinks and recent tokens") {
  const Layers layers = random_layers(2, {.prompt = 30, .decode = 0, .n_lanes = 2, .group = 2}, 6);
  const Composition duo =
      parse_composition("streaming_llm(sinks=2)+retrieval_heads(sinks=2,recent=5)", builtin());
  const AllocationRequest request = measured_request(duo, layers, 12);
  for (std::size_t lane = 0; lane < 4; ++lane) {
    double far = 0;
    for (int head = static_cast<int>(lane % 2) * 2; head < static_cast<int>(lane % 2) * 2 + 2; ++head)
      for (std::size_t i = 0; i < 30; ++i)
        for (std::size_t j = 2; j + 5 <= i; ++j)
          far += static_cast<double>(layers[lane / 2].p(head, i, j)) / (2 * 30);
    CHECK(request.profiles[lane][0] == Approx(far));
  }
}

TEST_CASE("retrieval heads from a file of query heads: the largest of a group counts") {
  const Matrix gates = {{.1, .2, .9, 0}, {.3, .3, .5, .4}};
  CHECK(with_file("retrieval_heads(scores=heads.json,sinks=4,recent=6,retrieval=0.5)",
                  request_of(2, 2, 100, 40), gates) == Tokens{10, kAll, 10, kAll});
}

TEST_CASE("headkv has the pool of the authors' example") {
  // 32 layers of 32 heads, 128 tokens, beta 1.01: 126 per head go into a pool of 129,024, 2 stay. A head with
  // all the importance takes the pool.
  Matrix one(32, std::vector<double>(32));
  one[3][5] = 7;
  for (const char* variant : {"exact", "official"}) {
    const Tokens tokens = with_file(std::string("headkv(scores=heads.json,variant=") + variant + ")",
                                    request_of(32, 32, 200000, 136, 8), one);
    CHECK(tokens[3 * 32 + 5] == 8 + 2 + 129024);
    CHECK(tokens[0] == 8 + 2);
    CHECK(total(tokens, 200000) == std::size_t{136} * 1024);
  }
  // KVCache-Factory counts the window in and adds it again: 136 // 1.01 = 134 into the pool, 2 stay, 8 on
  // top.
  const Tokens factory =
      with_file("headkv(scores=heads.json,variant=factory)", request_of(32, 32, 200000, 136, 8), one);
  CHECK(total(factory, 200000) == std::size_t{136 + 8} * 1024);
}

TEST_CASE("headkv averages over a group") {
  // beta 1: everything is pooled. Eight query heads with caps 8 4 6 2 and 12 2 4 6, whose means are 5 and 6;
  // the total of 44 is 8 query heads times 5.5.
  const Matrix caps = {{8, 4, 6, 2, 12, 2, 4, 6}};
  for (const char* variant : {"exact", "official"}) {
    AllocationRequest request = request_of(1, 2, 100, 5, 0);
    // 40 of 44 shares: 7.27 3.64 5.45 1.82 and 10.91 1.82 3.64 5.45, rounded 7 4 5 2 and 11 2 4 5: 4.5
    // and 5.5.
    const Tokens tokens =
        with_file(std::string("headkv(scores=heads.json,beta=1,variant=") + variant + ")", request, caps);
    CHECK(tokens == (std::string(variant) == "exact" ? Tokens{5, 5} : Tokens{4, 6}));
  }
  // Per KV head, the sums 20 and 24 of 11 tokens each: 5 and 6 of 11.
  CHECK(with_file("headkv(scores=heads.json,beta=1)", request_of(1, 2, 100, 11, 0), caps) == Tokens{10, 12});
}

TEST_CASE("headkv gives no head more than the prompt, and spends the rest on the others") {
  const Matrix skewed = {{100, 1}, {1, 1}};
  const Tokens tokens = with_file("headkv(scores=heads.json)", request_of(2, 2, 40, 20, 4), skewed);
  CHECK(tokens[0] == 40);
  CHECK(total(tokens, 40) == 80);
}

TEST_CASE("fixed shares, worked by hand") {
  CHECK(allocate("fixed(shares=4:2:1:1)", request_of(4, 2, 100, 12, 4)) ==
        Tokens{20, 20, 12, 12, 8, 8, 8, 8});
  CHECK(with_file("fixed(shares=heads.json)", request_of(2, 2, 100, 10, 2), {{1, 3}, {2, 2}}) ==
        Tokens{6, 14, 10, 10});
  // One column is per layer; query heads add up; shared lanes get the mean.
  CHECK(with_file("fixed(shares=heads.json)", request_of(2, 2, 100, 10, 2), {{1}, {3}}) ==
        Tokens{6, 6, 14, 14});
  CHECK(with_file("fixed(shares=heads.json)", request_of(1, 2, 100, 10, 2), {{1, 2, 0, 1}}) == Tokens{14, 6});
  AllocationRequest shared = request_of(2, 2, 100, 10, 2);
  shared.shared = true;
  CHECK(with_file("fixed(shares=heads.json)", shared, {{1, 3}, {2, 2}}) == Tokens{10, 10, 10, 10});
  CHECK(allocate("fixed(shares=5)", request_of(1, 1, 100, 10, 2)) == Tokens{10});
}

TEST_CASE("shares that do not fit are refused with the reason") {
  CHECK_THROWS_WITH(allocate("fixed(shares=4:2)", request_of(3, 1, 100, 10)),
                    Contains("2 layers, the run has 3"));
  for (const char* text : {"4::2", ":", "1.2.3:4", "4:"})
    CHECK_THROWS_WITH(allocate(std::string("fixed(shares=") + text + ")", request_of(2, 1, 100, 10)),
                      Contains("not a list of numbers"));
  const AllocationRequest request = request_of(2, 2, 100, 10);
  const std::string fixed = "fixed(shares=heads.json)";
  CHECK_THROWS_WITH(with_file(fixed, request, {{1, 2}}), Contains("1 layers, the run 2"));
  CHECK_THROWS_WITH(with_file(fixed, request, {{1, 2}, {1}}), Contains("layer 1") && Contains("1 heads"));
  CHECK_THROWS_WITH(with_file(fixed, request, {{1, 2, 3}, {1, 2, 3}}), Contains("3 heads; the run has 2"));
  CHECK_THROWS_WITH(with_file(fixed, request, {{}, {}}), Contains("0 heads"));
  for (const double bad : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    CHECK_THROWS_WITH(with_file(fixed, request, {{1, 2}, {1, bad}}), Contains("negative or not finite"));
}

}  // namespace kvsim::policy::test::test_allocation_heads
