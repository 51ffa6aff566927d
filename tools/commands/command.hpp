#pragma once
/// A subcommand of kvsim. One file each (command_NAME.cpp); main.cpp lists them.
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// Adds the subcommand and its options to `app` and sets its callback. The callback prints results to stdout,
/// notes and progress to stderr, and throws kvsim::Error.
void add_capture_command(Command app);
void add_workload_command(Command app);
void add_trace_command(Command app);
void add_policy_command(Command app);
void add_replay_command(Command app);
void add_evaluate_command(Command app);
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

}  // namespace kvsim::tools
