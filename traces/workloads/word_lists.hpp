#pragma once
/// Plain English nouns for facts and lists. In the sample model's tokenizer each is one token (with the space
/// before it), and the model was trained to look up keys and answer with values
/// (traces/sample/model/CARD.md).
#include <string>
#include <vector>

namespace kvsim::workload {

const std::vector<std::string>& key_words();    ///< 177 words
const std::vector<std::string>& value_words();  ///< 178 other words
const std::vector<std::string>& all_words();    ///< keys, then values
/// Single letters that are not words themselves.
const std::vector<std::string>& variable_names();

}  // namespace kvsim::workload
