#pragma once
/// What config.json says of layers that are not all of attention and one feed-forward.
#include "traces/model/model_config.hpp"

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

/// Reads the latent attention of a family that has it: what is cached of a token is one head of `rank +
/// rotated` numbers, the first `rank` of which are its value. Throws Error(input), as the others do.
void read_latent(const JsonObject& config, const Family& family, ModelConfig& model);
/// Reads experts, recurrences, and which layers have them.
void read_layer_kinds(const JsonObject& config, const Family& family, ModelConfig& model);

}  // namespace kvsim::model
