#include "tools/printing/formatted_output.hpp"

#include <sstream>

#include "sim/base/error.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/visible_text.hpp"

namespace kvsim::tools {

FormattedOutput::FormattedOutput(analysis::Format format, const std::string& path, bool overwrite)
    : format_(format), to_caller_(path.empty() || path == "-") {
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
  if (to_caller_ && front_end().take(document)) return;
  std::ostringstream text;
  analysis::write_document(text, format_, document);
  const bool people = format_ == analysis::Format::table || format_ == analysis::Format::md;
  text_->commit(people ? visible(text.str()) : text.str());
}

}  // namespace kvsim::tools
