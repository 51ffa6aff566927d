// kvsim policy: which policies there are, and what each does.

#include "tools/commands/command.hpp"
#include "tools/printing/policy_report.hpp"

namespace kvsim::tools {
namespace {

void add_list(Command policy) {
  Command list = policy.add_subcommand("list", "All policies, allocations and presets");
  const auto format = std::make_shared<std::string>("table");
  list.add_option("--format", *format, "table|json|md", "Written as");
  list.callback([format] { write_policy_list(front_end().results(), front_end().policies(), *format); });
}

void add_show(Command policy) {
  Command show = policy.add_subcommand("show", "Rule, paper, parameters and needs of one policy");
  const auto name = std::make_shared<std::string>();
  show.add_required("POLICY", *name, "", "Policy, allocation, preset or composition");
  show.callback([name] { write_policy_report(front_end().results(), front_end().policies(), *name); });
}

}  // namespace

void add_policy_command(Command app) {
  Command policy = app.add_subcommand("policy", "List policies and explain them", R"(Examples:
  kvsim policy list
  kvsim policy show snapkv
  kvsim policy list --format md
)");
  policy.require_subcommand(1);
  add_list(policy);
  add_show(policy);
}

}  // namespace kvsim::tools
