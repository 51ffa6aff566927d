#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/cost/memory.hpp"

namespace kvsim::cost::test_storage {
namespace {

using Catch::Contains;

Storage storage(const std::string& representation, const std::string& eviction = "full") {
  const policy::Composition composition =
      policy::parse_composition(eviction + "+" + representation, policy::builtin());
  return served_with({}, composition).layout.storage;
}

/// One lane of keys and values of 128 numbers.
Model heads_of(std::uint64_t dim, std::uint64_t kv_heads = 1) {
  Model model;
  model.layers = 1;
  model.kv_heads = kv_heads;
  model.query_heads = kv_heads;
  model.head_dim = model.value_dim = dim;
  return model;
}

double bits_per_number(const Storage& storage, std::uint64_t dim = 128) {
  constexpr std::uint64_t kTokens = 1 << 10;
  return 8 * static_cast<double>(stored_bytes(storage, heads_of(dim), 1, {.kept = kTokens})) /
         static_cast<double>(2 * kTokens * dim);
}

}  // namespace

TEST_CASE("bits per number, scales included", "[cost][storage]") {
  CHECK(bits_per_number({}) == 16);
  CHECK(bits_per_number({.element_bits = 32}) == 32);
  CHECK(bits_per_number(storage("fp8")) == 8);
  CHECK(bits_per_number(storage("q8_0")) == 8.5);                        // 16 per 32
  CHECK(bits_per_number(storage("q4_0")) == 4.5);                        // 16 per 32
  CHECK(bits_per_number(storage("scalar(bits=4,group=64)")) == 4.5);     // 32 per 64, as FlexGen's cache
  CHECK(bits_per_number(storage("scalar(bits=8,group=0)"), 64) == 8.5);  // 32 per 64
  CHECK(bits_per_number(storage("scalar(bits=16)")) == 16);
}

TEST_CASE("kivi's windows: keys wait for a full one, values slide", "[cost][storage]") {
  // Along channels 128 keys are coded at once, 128 * (2 + 32/32) bits per channel; of the values all but the
  // latest 128 are.
  const Storage kivi = storage("kivi(bits=2)");
  const Model model = heads_of(128);
  const auto bytes = [&](std::uint64_t tokens) { return stored_bytes(kivi, model, 1, {.kept = tokens}); };
  const std::uint64_t exact = 256, code = 128 * 3 / 8;  // of a key or a value
  CHECK(bytes(0) == 0);
  CHECK(bytes(1) == 2 * exact);
  CHECK(bytes(127) == 127 * 2 * exact);
  CHECK(bytes(128) == 128 * code + 128 * exact);
  CHECK(bytes(129) == 128 * code + exact + code + 128 * exact);
  CHECK(bytes(300) == 256 * code + 44 * exact + 172 * code + 128 * exact);
  // Generated tokens lie beside the prompt's as if they were of it.
  CHECK(stored_bytes(kivi, model, 1, {.kept = 200, .appended = 100}) == bytes(300));
  CHECK(coded_numbers(kivi, model, {.kept = 300}) == 128 * (256 + 172));
  CHECK(coded_numbers({}, model, {.kept = 300}) == 0);
}

TEST_CASE("empty slots take what a token would take in them", "[cost][storage]") {
  const Model model = heads_of(128);
  CHECK(empty_bytes({}, model, 1, {.kept = 5}, 3) == 3 * 512);
  CHECK(empty_bytes({}, model, 1, {.kept = 5}, 0) == 0);
  CHECK(empty_bytes(storage("fp8"), model, 2, {.kept = 5}, 3) == 2 * 3 * 256);
  const Storage kivi = storage("kivi(bits=2)");
  // The next token waits exactly; of the values it pushes one out of the window, which is coded.
  CHECK(empty_bytes(kivi, model, 1, {.kept = 128}, 1) == 256 + 48);
  // The 128th token has all keys coded: that saves more than the token takes.
  CHECK(empty_bytes(kivi, model, 1, {.kept = 127}, 1) == 0);
}

TEST_CASE("lanes of a unit are counted together, others one by one", "[cost][storage]") {
  const Model model = heads_of(9, 4);
  // 3 tokens of 18 numbers of 8 bits are whole bytes; zipcache's bit per token is rounded up once per unit.
  CHECK(stored_bytes(storage("fp8"), model, 4, {.kept = 3}) == 4 * 3 * 18);
  const std::string zipcache = "zipcache(hi=16,lo=16)";
  CHECK(stored_bytes(storage(zipcache), model, 4, {.kept = 3}) == 4 * (3 * 36 + 1));
  const Storage together = storage(zipcache, "h2o(unit=layer)");
  CHECK(together.together);
  CHECK(stored_bytes(together, model, 4, {.kept = 3}) == 4 * 3 * 36 + 2);
  CHECK(stored_ledger(together, model, 4, {.kept = 3}) ==
        stored_ledger(storage(zipcache), model, 4, {.kept = 3}));
}

TEST_CASE("what only layers between the first and the last store otherwise counts", "[cost][storage]") {
  // Of six layers the fourth and the fifth are a pair; a last one without a partner stays as it is. Of 2 x
  // 128 numbers of 16 bits these two store half, and two lengths of 16 bits: 4,096 and 2,080 bits.
  Model model = heads_of(128);
  model.layers = 6;
  CHECK(stored_ledger(storage("minicache"), model, 1, {.kept = 3}).bits() == 3 * (4 * 4096 + 2 * 2080) / 6);
}

TEST_CASE("tables that sequences share are held once", "[cost][storage]") {
  Model model = heads_of(128, 8);
  model.layers = 32;
  model.query_heads = 8;
  Serving serving{.prompt = 100, .generate = 0};
  serving.layout.storage = storage("fp8(scale=head)");
  const auto memory = [&] {
    const Holding all{{{model.layers, {{8, 100, kNoLimit}}}}};
    return memory_at(model, Machine{}, serving, all, {}, 0);
  };
  // A 32-bit scale of keys and one of values per KV head and layer.
  CHECK(memory().shared_tables == 32 * 8 * 2 * 4);
  CHECK(memory().keys_values == 32 * 8 * 100 * 256);
  CHECK(memory().cache() == memory().keys_values + memory().shared_tables);
  serving.batch = 3;
  CHECK(memory().shared_tables == 32 * 8 * 2 * 4);
  CHECK(memory().keys_values == 3 * 32 * 8 * 100 * 256);
  serving.tensor_parallel = 2;
  CHECK(memory().shared_tables == 32 * 4 * 2 * 4);
  serving.layout.storage = storage("fp8");
  CHECK(memory().shared_tables == 0);
}

TEST_CASE("what a replay has counted is taken before what a ledger says", "[cost][storage]") {
  const Model model = heads_of(128, 2);
  Serving serving{.prompt = 100, .generate = 10};
  serving.layout.storage = storage("fp8");
  // Two lanes of 10.5 bytes after the prompt, of 20 at the end.
  const Holding counted{{{1, {{2, 50, 50, CountedBits{84, 160}}}}}};
  const auto bytes = [&](std::uint64_t step) {
    return memory_at(model, Machine{}, serving, counted, {}, step).keys_values;
  };
  CHECK(bytes(0) == 21);
  CHECK(bytes(5) == 2 * 50 * 256);
  CHECK(bytes(10) == 40);
}

TEST_CASE("sizes beyond 64 bits are refused", "[cost][storage]") {
  const Model model = heads_of(128, 8);
  for (const Storage& any : {Storage{}, storage("fp8"), storage("kivi")}) {
    CHECK_THROWS_WITH(stored_bytes(any, model, 8, {.kept = std::uint64_t{1} << 60}), Contains("64 bits"));
    CHECK_THROWS_WITH(stored_bytes(any, model, 8, {~std::uint64_t{0}, 1}), Contains("64 bits"));
    CHECK_THROWS_WITH(empty_bytes(any, model, 1, {.kept = 5}, ~std::uint64_t{0}), Contains("64 bits"));
  }
}

TEST_CASE("a representation that a model's heads do not suit has no price", "[cost][storage]") {
  const policy::Composition flexgen =
      policy::parse_composition("full+scalar(bits=4,group=64)", policy::builtin());
  CHECK_THROWS_WITH(cost_of(flexgen, heads_of(96), 100, 100), Contains("do not divide"));
  CHECK_NOTHROW(cost_of(flexgen, heads_of(128), 100, 100));
}

}  // namespace kvsim::cost::test_storage
