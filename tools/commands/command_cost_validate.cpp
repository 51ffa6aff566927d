// kvsim cost validate: numbers that papers and logs print, and ours.
#include <memory>

#include "analysis/cost/validation_table.hpp"
#include "sim/base/error.hpp"
#include "tools/commands/cost_commands.hpp"
#include "tools/printing/cost_document.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {
namespace {

/// Standard output or a file gets the results whatever they say; what does not hold is an error after them.
void run(const OutputOptions& options) {
  check_cost_output(options);
  const policy::Registry& policies = front_end().policies();
  commit_costs(options, false,
               {.analysis = "cost validate",
                .traces = {},
                .records = analysis::validation_records(policies),
                .console = [&](std::ostream& out) { analysis::write_validation_table(out, policies); },
                .page = [&](std::ostream& out) { analysis::write_validation_page(out, policies); }});
  if (!analysis::validated(policies))
    throw Error(ErrorKind::different, "ours are not as expected of the published numbers", "cost validate");
}

}  // namespace

void add_cost_validate(CLI::App& cost) {
  CLI::App* command = cost.add_subcommand(
      "validate", "Numbers that papers and logs print, and ours; fails when one is not as expected");
  command->footer("Examples:\n  kvsim cost validate\n  kvsim cost validate -o numbers.csv\n");
  const auto options = std::make_shared<OutputOptions>();
  add_output_options(*command, *options);
  command->callback([options] { run(*options); });
}

}  // namespace kvsim::tools
