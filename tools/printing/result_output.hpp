#pragma once
/// The destination of a command's results: standard output, or a file that appears only when it is complete.
#include <optional>
#include <string>
#include <string_view>

#include "analysis/results/document.hpp"
#include "analysis/results/hdf5_export.hpp"
#include "sim/base/files.hpp"
#include "sim/base/partial_file.hpp"
#include "tools/options/output_options.hpp"

namespace kvsim::tools {

class ResultOutput {
 public:
  /// An empty `path` or "-" is standard output; a device, or a pipe that is open already, is written in
  /// place. Anything else is a PartialFile, opened at once so that a path that cannot be written is refused
  /// before any work, and throws as that does.
  ResultOutput(const std::string& path, bool overwrite);
  /// Writes `text` and gives the file its name. Throws Error(input) when the disk is full. main()
  /// checks standard output for failures. Call it once, at the end.
  void commit(std::string_view text);

 private:
  std::string path_;  ///< empty: standard output
  std::optional<AtomicFile> file_;
  FileDescriptor in_place_;
};

/// Whether nobody will ever read what is written to a pipe (`| head`).
bool reader_gone(int descriptor);

/// Results in the format that was asked for, or as they are for a front end that takes them.
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
