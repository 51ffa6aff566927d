#pragma once
/// The commands of kvsim cost. One file each (command_cost_NAME.cpp); command_cost.cpp lists them.
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

void add_cost_estimate(Command cost);
void add_cost_fit(Command cost);
void add_cost_calibrate(Command cost);
void add_cost_allocators(Command cost);
void add_cost_break_even(Command cost);
/// `models` and `machines`.
void add_cost_lists(Command cost);

}  // namespace kvsim::tools
