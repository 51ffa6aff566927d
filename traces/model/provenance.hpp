#pragma once
/// The provenance that a trace records.
#include <string>

#include "traces/format/header.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model {

/// A random UUID, version 4 (RFC 4122).
std::string random_uuid();
/// The current time in UTC, ISO 8601 to the second.
std::string now_utc();

/// What traces and rows call the model of a folder: the folder's own name.
std::string model_name(const std::string& directory);

/// Shape and arithmetic of the model in a run that reaches `positions` positions, named after its folder;
/// weights_sha256 is left empty.
trace::Model describe_model(const ModelConfig& config, const Weights& weights, const std::string& directory,
                            std::uint64_t positions);
/// Machine, arithmetic and software of a run on the processor; fields that state the request are left empty.
trace::Capture describe_processor(unsigned threads);

}  // namespace kvsim::model
