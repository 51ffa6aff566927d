#pragma once
/// A subcommand of kvsim, and the words that every one is written in: options, their numbers, errors, and
/// where results and notes go. One file each (command_NAME.cpp); run_command.cpp lists them.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tools/options/command_tree.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {

/// Adds the subcommand and its options to `app` and sets its callback. The callback prints results to stdout,
/// notes and progress to stderr, and throws kvsim::Error.
void add_capture_command(Command app);
void add_workload_command(Command app);
void add_trace_command(Command app);
void add_policy_command(Command app);
void add_replay_command(Command app);
void add_evaluate_command(Command app);
void add_choose_command(Command app);
void add_agreement_command(Command app);
void add_allocate_command(Command app);
void add_calibrate_command(Command app);
void add_analyze_command(Command app);
void add_plot_command(Command app);
void add_report_command(Command app);
void add_view_command(Command app);
void add_diff_command(Command app);
void add_export_command(Command app);
void add_study_command(Command app);
void add_cost_command(Command app);
void add_requests_command(Command app);
void add_config_command(Command app);
void add_help_command(Command app);
void add_completion_command(Command app);
void add_man_command(Command app);

// Those of kvsim cost and kvsim trace; command_cost.cpp and command_trace.cpp list them.

void add_cost_estimate(Command cost);
void add_cost_fit(Command cost);
void add_cost_calibrate(Command cost);
void add_cost_allocators(Command cost);
void add_cost_break_even(Command cost);
/// `models` and `machines`.
void add_cost_lists(Command cost);

void add_trace_export(Command trace);
void add_trace_join(Command trace);
void add_trace_manifest(Command trace);
void add_trace_mark(Command trace);
void add_trace_predict(Command trace);
void add_trace_show(Command trace);

}  // namespace kvsim::tools
