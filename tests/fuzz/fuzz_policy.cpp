// Any text either is a composition or is refused as a usage error, and its canonical form means the same.
#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_policy {
namespace {

void read(std::string_view input) {
  const std::string text(input);
  try {
    const policy::Composition once = policy::parse_composition(text, policy::builtin());
    const policy::Composition again = policy::parse_composition(once.params, policy::builtin());
    require(again.params == once.params, "the canonical form is its own canonical form");
    require(again.floor() == once.floor(), "the canonical form means the same");
  } catch (const Error& error) {
    require(std::string_view(error.what()).size() < 2 * text.size() + 1000,
            "a refusal is about as long as its text");
    throw;
  }
}

const Registered kTarget({"policy", {ErrorKind::usage}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_policy
