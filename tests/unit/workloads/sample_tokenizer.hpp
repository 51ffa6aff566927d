#pragma once
/// The shipped tokenizer, loaded once.
#include "traces/capture/input_file.hpp"
#include "traces/capture/tokenizer.hpp"

inline const kvsim::capture::Tokenizer& sample_tokenizer() {
  using namespace kvsim::capture;
  static const std::string kPath = KVSIM_SOURCE_DIR "/traces/sample/model/tokenizer.json";
  static const Tokenizer kTokenizer(read_file(kPath, kMaxTokenizerBytes), kPath);
  return kTokenizer;
}
