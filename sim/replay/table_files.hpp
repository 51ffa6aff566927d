#pragma once
/// Reads the files that policies' parameters name: numbers per layer, KV head and position that other
/// programs write.
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "policies/api/eviction.hpp"
#include "sim/replay/calibration_tables.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// The tables of one run. A dataset is [n_layers, n_kv_heads, n] of f32, f64 or u8, with n at most the run's
/// length and every number finite and within the range of f32, to which it is rounded. It is read whole on
/// first use, and its file is closed then. row() may be called from any thread.
class TableFiles final : public policy::Tables {
 public:
  /// "{trace}" in the name of a file or dataset stands for `name`; empty: for the name of the trace's file,
  /// without folder and ending.
  explicit TableFiles(const trace::Sequence& sequence, std::string name = {});
  /// A table [n_layers, n_kv_heads, dims...] under the name kOfRun, before it is asked for.
  void give(const std::string& dataset, std::vector<std::size_t> dims, std::vector<float> table);

  bool has_second_pass() const override { return second_pass_; }
  void require_file(std::string_view file) const override { expanded_file(file); }
  /// `dataset` is a path from the file's root: "scores" or "study/scores". Throws Error(input) as
  /// hdf5_input.hpp does, and for another shape or a number that is not finite, Error(usage) when a file or
  /// dataset named with "{trace}" is not there.
  ///
  /// "cells/0000/last_step" of a decisions file (decisions.hpp) is given by position, for prompt and
  /// generated tokens: the first step at which the position is not resident any more; 0: not even after the
  /// prompt. Its run must have the same model shape and prompt length. It may have more tokens than this one,
  /// and throws Error(input) when a position that was gone came back, which no policy can follow.
  std::vector<float> row(std::string_view file, std::string_view dataset, int layer,
                         int kv_head) const override;
  /// Of a dataset that is read and checked as those of row() are, but for the number of its dimensions.
  std::vector<float> of_head(std::string_view file, std::string_view dataset, int layer, int kv_head,
                             std::span<const std::size_t> dims) const override;
  /// Reads `file` as read_matrix() does.
  std::vector<std::vector<double>> matrix(std::string_view file) const override;
  /// Of a calibration (sim/replay/calibration_tables.hpp), which must be of a model of this shape. It is
  /// refused, Error(usage), when one of its traces has the content or the recorded prompt of this run, unless
  /// that is allowed.
  std::vector<float> calibrated(const policy::CalibrationRequest& request, std::string_view table, int layer,
                                int kv_head) const override;

 private:
  const Calibration& calibration(const policy::CalibrationRequest& request) const;
  std::string expanded(std::string_view text) const;
  std::string expanded_file(std::string_view file) const;
  std::vector<float> load(const std::string& file, const std::string& dataset,
                          std::span<const std::size_t> dims) const;
  std::vector<float> load_last_steps(const std::string& file, const std::string& cell) const;

  /// Of a table of all lanes.
  std::vector<float> lane_of(const std::vector<float>& table, int layer, int kv_head) const;

  std::string name_;
  std::string content_sha256_, prompt_sha256_;
  std::uint64_t n_layers_, n_kv_heads_, head_dim_, value_dim_, length_, prompt_;
  bool second_pass_ = false;
  mutable std::mutex mutex_;
  /// By file, dataset and the dims that were asked for.
  mutable std::map<std::tuple<std::string, std::string, std::vector<std::size_t>>, std::vector<float>>
      loaded_;
  mutable std::map<std::string, Calibration> calibrations_;  ///< by file
};

// Reads small tables of numbers per layer and head, in the forms that users and published code write.

/// Returns the rows of `file`, [layers][heads], each as long as in the file. What a number means is up to the
/// caller.
std::vector<std::vector<double>> read_matrix(const std::string& file);

}  // namespace kvsim::sim
