// Damages untrusted model and machine files at random: each is accepted or refused with Error(input), and an
// accepted file has sizes and rates that are valid in formulas.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/rng.hpp"
#include "sim/cost/catalogue_files.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/model.hpp"
#include "tests/support/mutation.hpp"

namespace kvsim::cost {
namespace {

using namespace kvsim::fuzz;

/// Calls `read` with damaged copies of every file; returns how many it accepted, and out of how many.
template <class Read>
void fuzz_files(const std::vector<CatalogueFile>& files, std::uint64_t key, const Read& read) {
  int accepted = 0, tried = 0;
  for (const CatalogueFile& file : files) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      Dice dice(combine({key, seed}));
      const std::string text = mutate(std::string(file.text), dice);
      INFO(file.name << " seed " << seed << ": " << text);
      ++tried;
      accepted += accepts([&] { read(text); });
    }
  }
  CHECK(accepted > tried / 20);
  CHECK(accepted < tried * 19 / 20);
}

}  // namespace

TEST_CASE("fuzz: models") {
  fuzz_files(model_files(), 5, [](const std::string& text) {
    const Model model = parse_model(text, "fuzz");
    REQUIRE(model.layers > 0);
    REQUIRE(model.query_heads % model.kv_heads == 0);
    REQUIRE(model.head_dim > 0);
    REQUIRE(model.parameters() > model.streamed_parameters() / 2);
    REQUIRE(full_cache_bytes(model, Layout{}, 1, 1) == 4 * model.layers * model.kv_heads * model.head_dim);
  });
}

TEST_CASE("fuzz: machines") {
  fuzz_files(machine_files(), 6, [](const std::string& text) {
    const Machine machine = parse_machine(text, "fuzz");
    REQUIRE((machine.matrix_rate > 0 && std::isfinite(machine.matrix_rate)));
    REQUIRE((machine.bandwidth > 0 && std::isfinite(machine.bandwidth)));
    REQUIRE(machine.memory > 0);
    REQUIRE((machine.ceilings.compute > 0 && machine.ceilings.compute <= 1));
    const std::string canonical = machine_text(machine);
    REQUIRE(machine_text(parse_machine(canonical, "fuzz")) == canonical);
  });
}

}  // namespace kvsim::cost
