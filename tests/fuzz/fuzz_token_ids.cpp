// Any text either is a list of token ids below the size of the vocabulary or is refused as an input error.
#include "tests/fuzz/target.hpp"
#include "traces/capture/prompt.hpp"

namespace kvsim::fuzz::fuzz_token_ids {
namespace {

void read(std::string_view input) {
  for (const std::int32_t id : capture::parse_token_ids(input, 257, "fuzz"))
    require(id >= 0 && id < 257, "ids are in the vocabulary");
}

const Registered kTarget({"token_ids", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_token_ids
