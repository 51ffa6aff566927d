#pragma once
/// `kvsim cost --calibrate`: a machine file from traces.
#include <string>
#include <vector>

namespace kvsim::tools {

struct CalibrationRequest {
  std::vector<std::string> traces{};
  std::string machine{};  ///< whose datasheet, links and memory are taken; empty: nothing is known of it
  std::string output{};   ///< the machine file; empty: none is written
  std::string format = "table";
  bool overwrite = false;
};

/// Prints ceilings and errors, and writes the machine file. Throws what reading traces and calibrate() throw,
/// and Error(usage) for traces of different machines or thread counts.
void run_calibration(const CalibrationRequest& request);

}  // namespace kvsim::tools
