// kvsim cost: bytes and seconds of policies that serve a model on a machine.
#include "tools/commands/command.hpp"

namespace kvsim::tools {
void add_cost_command(Command app) {
  Command command =
      app.add_subcommand("cost", "Bytes and seconds of policies that serve a model on a machine", R"(Examples:
  kvsim cost estimate --model llama-3-8b --machine a100-80-sxm --prompt-tokens 8K
  kvsim cost fit --model llama-3-8b --machine a100-80-sxm --prompt-tokens 32K --policy snapkv --ttft 40s
  kvsim cost calibrate long.h5 short.h5 -o mine.json
  kvsim cost machines
)");
  command.require_subcommand(1);
  add_cost_estimate(command);
  add_cost_fit(command);
  add_cost_calibrate(command);
  add_cost_allocators(command);
  add_cost_break_even(command);
  add_cost_lists(command);
}

}  // namespace kvsim::tools
