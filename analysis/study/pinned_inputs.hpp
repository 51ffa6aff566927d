#pragma once
/// The contents that a study reads besides traces and prompts: model, tokenizer, machine, texts and the files
/// that policies name. Finished tasks and those to come must be about the same.
#include <boost/json/value.hpp>
#include <string>
#include <vector>

namespace kvsim::analysis {

struct StudyPlan;

struct PinnedFile {
  std::string role;  ///< "capture.model/config.json", "policies tables.h5": the same wherever the file lies
  std::string path, sha256;
  std::string state{};  ///< of the file when it was read: what changes when somebody writes it
};

/// SHA-256 of a file, in hexadecimal digits. Throws Error(input).
std::string file_digest(const std::string& path);

/// Reads every one of them. Throws Error(input).
std::vector<PinnedFile> pinned_inputs(const StudyPlan& plan);

/// What study.json says of them.
boost::json::object inputs_document(const std::vector<PinnedFile>& files);

/// Throws Error(input) if one has another content now.
void require_unchanged(const std::vector<PinnedFile>& files);

}  // namespace kvsim::analysis
