#pragma once
/// Loads the sample model's tokenizer once.
#include "traces/model/tokenizer.hpp"

inline const kvsim::model::Tokenizer& sample_tokenizer() {
  static const kvsim::model::Tokenizer kTokenizer =
      kvsim::model::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  return kTokenizer;
}
