#pragma once
/// Tokenizers that GGUF files hold as metadata (tokenizer.ggml.*): byte-pair encoding on bytes ("gpt2"), and
/// pieces with scores ("llama", SentencePiece's byte-pair models). What the file leaves out, its kind
/// implies, as llama.cpp has it.
#include "traces/model/gguf_file.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::model {

/// Whether the file holds a tokenizer, of whichever kind.
bool has_gguf_tokenizer(const Gguf& file);
/// Throws Error(input) naming file and key, for a kind that is not supported, too.
Tokenizer open_gguf_tokenizer(const Gguf& file);

}  // namespace kvsim::model
