#include "tools/printing/formatted_output.hpp"

#include <sstream>

#include "analysis/results/table_look.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/error.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/visible_text.hpp"

namespace kvsim::tools {
namespace {

/// The codes of tables stay as they are.
std::string visible_but_colours(std::string_view text) {
  std::string out;
  while (true) {
    std::size_t at = std::string_view::npos, length = 0;
    for (const std::string_view code : {analysis::kBestCode, analysis::kFaintCode, analysis::kPlainCode})
      if (const std::size_t found = text.find(code); found < at) at = found, length = code.size();
    out += visible(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out += text.substr(at, length);
    text.remove_prefix(at + length);
  }
}

}  // namespace

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
  const bool table = format_ == analysis::Format::table;
  std::ostream* const painted = table && to_caller_ ? front_end().painted() : nullptr;
  analysis::table_look().colours = painted != nullptr;
  if (!to_caller_) analysis::table_look().width = 0;
  analysis::write_document(text, format_, document);
  if (painted != nullptr)
    *painted << visible_but_colours(text.str());
  else
    text_->commit(table || format_ == analysis::Format::md ? visible(text.str()) : text.str());
}

}  // namespace kvsim::tools
