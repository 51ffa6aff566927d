// Seconds of prompts that are put together of documents.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/prompt_shortcuts.hpp"

namespace kvsim::cost::test_assembly {

TEST_CASE("a prompt of documents: what is computed, what is loaded, the first token") {
  const Model model = find_model("llama-3-8b");
  const Machine machine = find_machine("a100-80-sxm");
  Serving serving;
  serving.prompt = 10000;
  serving.batch = 2;
  // Everything is computed: the prefill, wherever documents lie.
  const double prefill = pass_time(model, machine, serving, 10000, 0, true).seconds();
  for (const std::optional<Tier> from : {std::optional<Tier>{}, std::optional(Tier::host)}) {
    const AssemblyTime all = assembly_time(model, machine, serving, 1, from);
    CHECK(all.first_token == prefill);
    CHECK(all.bytes == 0);
    CHECK(all.load == 0);
  }
  // A fifth: 8,000 tokens of 131,072 bytes of both prompts cross the link.
  const AssemblyTime fifth = assembly_time(model, machine, serving, 0.2, Tier::host);
  CHECK(fifth.computed == 2000);
  CHECK(fifth.bytes == 2ULL * 8000 * 131072);
  CHECK(fifth.load ==
        Approx(static_cast<double>(fifth.bytes) / machine.host.bandwidth + machine.host.latency));
  CHECK(fifth.compute == pass_time(model, machine, serving, 2000, 4000, true).seconds());
  CHECK(fifth.compute < prefill);
  CHECK(fifth.first_token ==
        Approx(std::max(fifth.compute, fifth.load) + std::min(fifth.compute, fifth.load) / 32));
  // On the device nothing is loaded, and at least the last token is computed.
  const AssemblyTime none = assembly_time(model, machine, serving, 0, {});
  CHECK(none.computed == 1);
  CHECK(none.load == 0);
  CHECK(none.first_token == none.compute);
  CHECK(none.compute < fifth.compute);
  serving.tensor_parallel = 4;
  CHECK(assembly_time(model, machine, serving, 0.2, Tier::host).bytes == fifth.bytes / 4);
  CHECK_THROWS_AS(assembly_time(model, machine, serving, 1.5, {}), Error);
  Machine alone = machine;
  alone.ssd = {};
  CHECK_THROWS_AS(assembly_time(model, alone, serving, 0.2, Tier::ssd), Error);
}

}  // namespace kvsim::cost::test_assembly
