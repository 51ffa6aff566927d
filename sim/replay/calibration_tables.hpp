#pragma once
/// The tables that representations read: measured on some runs, written as HDF5, read for others.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// A run that was measured. Either digest is empty where it is not known.
struct CalibrationTrace {
  std::string name{};
  std::string content_sha256{};  ///< trace::Source::content_sha256()
  std::string prompt_sha256{};   ///< prompt_digest()
  std::uint64_t tokens = 0;
};

struct Calibration {
  struct Table {
    std::string name{};
    std::uint64_t numbers = 0;    ///< per KV head
    std::vector<float> values{};  ///< [n_layers, n_kv_heads, numbers], finite
  };
  std::string maker{};  ///< the codec and the parameters that the tables depend on
  std::string model{};  ///< its name, for readers; the shape decides
  std::uint64_t n_layers = 0, n_kv_heads = 0, head_dim = 0, value_dim = 0;
  std::vector<CalibrationTrace> traces{};
  std::vector<Table> tables{};
};

/// One of the model's shape, without runs and tables.
Calibration calibration_of(const trace::Model& model, std::string maker);

/// Returns the measured run of which a digest is this one, known on both sides; null: there is none.
const CalibrationTrace* measured_on(const Calibration& calibration, const std::string& content_sha256,
                                    const std::string& prompt_sha256);

/// SHA-256 over the token ids of the prompt as it was recorded, wherever a cut ends it: the same text is
/// recognised in another capture of it and in a running model. Empty if ids are withheld.
std::string prompt_digest(const trace::Sequence& sequence);

/// Writes `path` (sim/base/partial_file.hpp): attributes format = "kvcalibration", schema_major, maker, model
/// and the shape; lists traces/{name,content_sha256,prompt_sha256,tokens}; a dataset f32 tables/NAME
/// [n_layers, n_kv_heads, numbers] per table, whose names are the list table_names.
void write_calibration(const std::string& path, const Calibration& calibration, bool overwrite);

/// Throws Error(input) when `path` is not such a file, contradicts itself, or holds a number that is not
/// finite.
Calibration read_calibration(const std::string& path);

/// Measures what a policy learns of other runs.
struct CalibrationRun {
  std::string name;
  const trace::Sequence* sequence;
};

/// Reads keys and values of every token of the runs once, layer by layer, and queries where the calibrator
/// needs them. `codec` has a calibrator. Throws Error(usage) when runs are of models of different shapes or
/// lack queries, Error(input) for numbers that are not finite, Error(interrupted).
Calibration calibrate(const policy::Part& codec, std::span<const CalibrationRun> runs, Progress& progress);

}  // namespace kvsim::sim
