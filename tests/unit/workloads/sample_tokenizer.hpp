#pragma once
/// The shipped tokenizer, loaded once.
#include "sim/base/read_file.hpp"
#include "traces/capture/tokenizer.hpp"

inline const kvsim::capture::Tokenizer& sample_tokenizer() {
  using namespace kvsim::capture;
  static const std::string kPath = KVSIM_SOURCE_DIR "/traces/sample/model/tokenizer.json";
  static const Tokenizer kTokenizer(kvsim::read_file(kPath, kMaxTokenizerBytes), kPath);
  return kTokenizer;
}
