#include "tools/printing/cost_document.hpp"

#include "analysis/cost/cost_table.hpp"
#include "tools/printing/cost_notes.hpp"
#include "tools/printing/formatted_output.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

std::vector<std::string> cost_head(const analysis::CostStudy& study, const std::vector<std::string>& more) {
  std::vector<std::string> head{"model    " + analysis::described(study.model),
                                "machine  " + analysis::described(study.machine),
                                "serving  " + described(study)};
  for (std::string& line : described(study.serving.offload, study.machine)) head.push_back(std::move(line));
  head.insert(head.end(), more.begin(), more.end());
  return head;
}

analysis::Document cost_document(const analysis::CostStudy& study) {
  return {.analysis = "cost", .traces = {}, .settings = settings_of(study), .records = {}};
}

void check_cost_output(const OutputOptions& options) {
  const FormattedOutput output(chosen_format(options), options.output, options.overwrite);
}

void commit_costs(const OutputOptions& options, bool quiet, const analysis::Document& document) {
  const analysis::Format format = chosen_format(options);
  FormattedOutput(format, options.output, options.overwrite).commit(document);
  if (format == analysis::Format::table || quiet) return;
  for (const std::string& line : document.notes) note(line);
}

}  // namespace kvsim::tools
