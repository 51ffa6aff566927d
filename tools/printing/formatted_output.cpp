#include "tools/printing/formatted_output.hpp"

#include <sstream>

#include "sim/base/error.hpp"

namespace kvsim::tools {

FormattedOutput::FormattedOutput(analysis::Format format, const std::string& path, bool overwrite)
    : format_(format) {
  if (format_ != analysis::Format::h5) {
    text_.emplace(path, overwrite);
    return;
  }
  if (path.empty() || path == "-")
    usage_error("HDF5 does not go to standard output", "--format h5", "Name a file: -o results.h5");
  h5_.emplace(path, overwrite);
}

void FormattedOutput::commit(const analysis::Document& document) {
  if (h5_) return h5_->commit(document);
  std::ostringstream text;
  analysis::write_document(text, format_, document);
  text_->commit(text.str());
}

void FormattedOutput::commit(const std::vector<analysis::NamedTable>& tables) {
  if (!h5_) bug("several tables in one text");
  h5_->commit({}, tables);
}

void FormattedOutput::commit(const std::vector<analysis::Row>& rows, const analysis::Inputs& inputs) {
  if (h5_) {
    analysis::Document document{
        .analysis = "replay",
        .traces = inputs.traces,
        .settings = {{"loop", "open"}, {"scope", scope_name(inputs.scope)}, {"seed", inputs.seed}},
        .records = analysis::records_of(rows)};
    if (!inputs.machine.empty()) {
      document.settings.emplace_back("machine", inputs.machine);
      document.settings.emplace_back("model", inputs.model);
    }
    return h5_->commit(document);
  }
  std::ostringstream text;
  analysis::write_rows(text, format_, rows, inputs);
  text_->commit(text.str());
}

}  // namespace kvsim::tools
