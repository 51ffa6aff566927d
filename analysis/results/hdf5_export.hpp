#pragma once
/// Tables as HDF5: a group per table, a dataset per column.
#include <memory>
#include <string>

#include "analysis/results/document.hpp"

namespace kvsim::hdf5 {
class OutputFile;
}

namespace kvsim::analysis {

/// The root's attribute `format`.
inline constexpr const char* kResultsFormat = "kvresults";
/// The table of what was looked at.
inline constexpr const char* kTracesTable = "traces";

/// A file that appears complete or not at all. Its layout: analysis/results/METRICS.md, "Files of results".
class Hdf5Export {
 public:
  /// Starts the file, so that a place that cannot be written is known before any work. Throws as
  /// hdf5::OutputFile does.
  Hdf5Export(const std::string& path, bool overwrite);
  ~Hdf5Export();

  /// Writes everything and gives the file its name; once. Tables are those of a study, or `results` and
  /// `traces`; settings are attributes of the root, undefined ones are left out. Throws Error(input) when the
  /// disk is full.
  void commit(const Document& document);

 private:
  std::unique_ptr<hdf5::OutputFile> file_;
};

}  // namespace kvsim::analysis
