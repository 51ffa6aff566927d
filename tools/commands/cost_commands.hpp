#pragma once
/// The commands of kvsim cost. One file each (command_cost_NAME.cpp); command_cost.cpp lists them.
#include <CLI/CLI.hpp>

namespace kvsim::tools {

void add_cost_estimate(CLI::App& cost);
void add_cost_fit(CLI::App& cost);
void add_cost_calibrate(CLI::App& cost);
void add_cost_allocators(CLI::App& cost);
void add_cost_break_even(CLI::App& cost);
/// `models` and `machines`.
void add_cost_lists(CLI::App& cost);

}  // namespace kvsim::tools
