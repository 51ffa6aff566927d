#pragma once
/// A small valid config.json, and the result of parsing it with a test's changes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "traces/model/model_config.hpp"

namespace kvsim::model {

/// `changes` are JSON members that are put last, `without` members that are left out.
inline std::string config_text(const std::string& changes = "", const std::vector<std::string>& without = {},
                               const std::string& type = "llama") {
  const std::vector<std::pair<std::string, std::string>> members{{"model_type", "\"" + type + "\""},
                                                                 {"hidden_size", "64"},
                                                                 {"intermediate_size", "96"},
                                                                 {"num_hidden_layers", "3"},
                                                                 {"num_attention_heads", "4"},
                                                                 {"num_key_value_heads", "2"},
                                                                 {"vocab_size", "257"},
                                                                 {"max_position_embeddings", "128"}};
  std::string text;
  for (const auto& [name, value] : members) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    text += (text.empty() ? "{\"" : ",\"") + name + "\":" + value;
  }
  return text + (changes.empty() ? "" : ",") + changes + "}";
}

inline ModelConfig parse(const std::string& changes = "", const std::vector<std::string>& without = {},
                         const std::string& type = "llama") {
  return parse_model_config(config_text(changes, without, type), "config.json");
}

/// The error message, or "accepted".
inline std::string problem(const std::string& changes, const std::vector<std::string>& without = {},
                           const std::string& type = "llama") {
  try {
    parse(changes, without, type);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

}  // namespace kvsim::model
