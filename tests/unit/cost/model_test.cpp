#include "sim/cost/model.hpp"

#include <catch2/catch.hpp>

namespace kvsim::cost {
namespace {

TEST_CASE("Llama-3-8B has 8.030 billion parameters") {
  const Model model = find_model("Llama-3-8B");
  // 32 * (4096*128*(32 + 2*8) + 32*128*4096 + 3*4096*14336 + 2*4096) + 2*128256*4096 + 4096
  CHECK(model.parameters() == 8'030'261'248);
}

}  // namespace
}  // namespace kvsim::cost
