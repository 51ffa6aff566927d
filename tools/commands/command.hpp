#pragma once
/// A subcommand of kvsim. One file each (command_NAME.cpp); main.cpp lists them.
#include <CLI/CLI.hpp>

namespace kvsim::tools {

/// Adds the subcommand and its options to `app` and sets its callback. The callback prints results to stdout,
/// notes and progress to stderr, and throws kvsim::Error. At most four examples begin the footer. An option
/// that takes one value per occurrence says allow_extra_args(false), or it swallows the positionals after it.
void add_capture_command(CLI::App& app);
void add_workload_command(CLI::App& app);
void add_trace_command(CLI::App& app);
void add_policy_command(CLI::App& app);
void add_replay_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_agreement_command(CLI::App& app);
void add_allocate_command(CLI::App& app);
void add_calibrate_command(CLI::App& app);
void add_analyze_command(CLI::App& app);
void add_plot_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_diff_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_study_command(CLI::App& app);
void add_cost_command(CLI::App& app);
void add_requests_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_help_command(CLI::App& app);
void add_completion_command(CLI::App& app);
void add_man_command(CLI::App& app);

}  // namespace kvsim::tools
