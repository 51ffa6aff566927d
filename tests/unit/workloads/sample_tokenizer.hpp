#pragma once
/// The shipped tokenizer, loaded once.
#include "traces/capture/tokenizer.hpp"

inline const kvsim::capture::Tokenizer& sample_tokenizer() {
  static const kvsim::capture::Tokenizer kTokenizer =
      kvsim::capture::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  return kTokenizer;
}
