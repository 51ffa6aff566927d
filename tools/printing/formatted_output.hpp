#pragma once
/// Results in the format that was asked for, or as they are for a front end that takes them.
#include <optional>
#include <string>

#include "analysis/results/document.hpp"
#include "analysis/results/hdf5_export.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {

class FormattedOutput {
 public:
  /// As ResultOutput; h5 is no text and needs a PATH, else Error(usage).
  FormattedOutput(analysis::Format format, const std::string& path, bool overwrite);
  explicit FormattedOutput(const OutputOptions& options)
      : FormattedOutput(chosen_format(options), options.output, options.overwrite) {}

  /// Call once, last.
  void commit(const analysis::Document& document);

 private:
  analysis::Format format_;
  bool to_caller_;  ///< no file was named
  std::optional<ResultOutput> text_;
  std::optional<analysis::Hdf5Export> h5_;
};

}  // namespace kvsim::tools
