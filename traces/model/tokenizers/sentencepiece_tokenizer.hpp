#pragma once
/// Opens tokenizer.model, the file of SentencePiece (Kudo & Richardson 2018), and adds the rules of Hugging
/// Face's Llama tokenizer.
#include <string>

#include "traces/model/tokenizer.hpp"

namespace kvsim::model {

/// Reads `path` and, beside it, tokenizer_config.json, special_tokens_map.json and added_tokens.json, where
/// they exist. Throws Error(input), also when kvsim was built without SentencePiece.
Tokenizer open_sentencepiece(const std::string& path);

}  // namespace kvsim::model
