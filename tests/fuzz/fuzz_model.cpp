// Any text either is a model of the cost model or is refused as an input error; an accepted one has sizes
// that are valid in formulas.
#include "sim/cost/memory.hpp"
#include "sim/cost/model.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_model {
namespace {

void read(std::string_view input) {
  const cost::Model model = cost::parse_model(input, "fuzz");
  require(model.layers > 0 && model.head_dim > 0, "a model has layers and heads");
  require(model.query_heads % model.kv_heads == 0, "a KV head serves whole query heads");
  require(model.parameters() > model.streamed_parameters() / 2, "most parameters are streamed");
  require(cost::full_cache_bytes(model, cost::Layout{}, 1, 1) ==
              4 * model.layers * model.kv_heads * model.head_dim,
          "a token's keys and values have their bytes");
}

const Registered kTarget({"model", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_model
