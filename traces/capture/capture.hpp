#pragma once
/// Runs a checkpoint on this machine and records the run as a trace.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/capture/token_choice.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/format/header.hpp"
#include "traces/format/writer.hpp"
#include "traces/model/model_run.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::capture {

struct CaptureOptions {
  std::string model_dir;
  // Exactly one of prompt_file, tokens_file and workload_file.
  std::string prompt_file;    ///< UTF-8 text, "-": standard input
  std::string tokens_file;    ///< JSON array of token ids, or whitespace-separated ids
  std::string workload_file;  ///< JSON Lines (traces/workloads/README.md)
  FieldNames fields{};        ///< of the workload, where it has other names for them
  std::string item;           ///< id of the workload's item; may be empty if there is only one
  /// The text, a conversation in JSON, or the item goes through the model's chat template (chat_prompt.hpp).
  bool chat = false;
  std::uint64_t max_new_tokens = 64;
  model::Sampling sampling;  ///< its seed also draws the sampled queries
  /// File of token ids that follow the prompt in place of chosen ones, such as the answer of another engine.
  /// If set, max_new_tokens, sampling and end-of-text ids have no effect.
  std::string given_file;
  QueryChoice queries;
  RowChoice attention;
  /// Store the column statistics of the prompt even if all queries are stored; otherwise they are always
  /// stored.
  bool column_statistics = false;
  bool prompt_logprobs = false;  ///< store the prompt's log probabilities, too
  bool output_weights = false;   ///< store every layer's attention output projection as it is in the
                                 ///< checkpoint
  std::string device = "cpu";    ///< cpu | cuda | cuda:N (device.hpp)
  unsigned threads = 0;
  std::uint64_t prefill_chunk = 512;
  /// f32 | bf16 | f16 | auto (bf16 for bf16 checkpoints, else f32). Queries, keys and values are rounded to
  /// it before attention uses them, as in a cache of that type, so that attention recomputed from the trace
  /// is that of the run.
  std::string elem = "auto";
  /// f32 | bf16 | auto: type of weights and activations in the computation. Auto is bf16 for a bf16
  /// checkpoint on a CUDA device, else f32; the processor computes in f32 only. A run that computes in bf16
  /// stores bf16.
  std::string compute = "auto";
  std::string output;
  /// The file of a second pass over the prompt, on the processor (second_pass.hpp): over all of it and, where
  /// its question is known, over what comes before. Empty: there is none.
  std::string second_pass;
  bool second_pass_queries = false;  ///< in that file, too
  /// Behind the prompt's run those that it could be put together of (Prompt::pieces).
  bool pieces = false;
  bool overwrite = false;
  unsigned deflate = 0;  ///< level of lossless compression of the trace, 1 to 9; 0: none
  bool ignore_eos = false;
  bool reproducible = false;  ///< leave out identity, date, times and threads, so that the same run gives the
                              ///< same bytes
};

struct CaptureResult {
  std::uint64_t prompt_tokens = 0, new_tokens = 0;
  std::uint64_t pieces = 0, piece_tokens = 0;  ///< runs behind the prompt's, and their tokens
  std::string text;                            ///< generated text, if the tokenizer is known
  std::vector<std::string> answers;            ///< of a workload's item
  std::uint64_t file_bytes = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  /// Notes for the user, such as unused tensors or text that cannot be decoded.
  std::vector<std::string> notes;
};

/// Captures a run into options.output. Progress counts prompt tokens and generated tokens. Throws Error
/// naming the file, tensor or token at fault.
CaptureResult run_capture(const CaptureOptions& options, Progress& progress);

/// Writes the tensors and attention rows of a run to a trace. There is one sequence, so positions are file
/// order.
class TraceRecorder : public model::RunObserver {
 public:
  struct Choice {
    std::uint64_t prompt = 0;            ///< tokens of the prompt
    std::vector<std::uint64_t> queries;  ///< prompt positions whose queries are stored, ascending
    bool columns = false;                ///< the prompt is counted in the column statistics
    std::uint64_t first_attention = 0;   ///< first position whose attention rows are stored
  };
  /// Stores every key and value, the queries and attention rows that `choice` names, and all queries of the
  /// tokens after the prompt. Throws Error(interrupted) between layers when `progress` is interrupted.
  TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads, Choice choice);

  void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                  const Elements& k, const Elements& v) override;
  bool wants_queries(std::uint64_t first, std::uint64_t n) const override {
    return !chosen_rows(first, n).empty();
  }
  std::uint64_t first_attention_row() const override { return choice_.first_attention; }
  bool counts_columns(std::uint64_t first) const override {
    return choice_.columns && first < choice_.prompt;
  }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override;

 private:
  std::vector<std::uint64_t> chosen_rows(std::uint64_t first, std::uint64_t n) const;
  Elements gathered(const Elements& q, std::uint64_t n, const std::vector<std::uint64_t>& rows);

  trace::Writer& writer_;
  const Progress& progress_;
  std::uint64_t query_heads_;
  Choice choice_;
  std::vector<std::byte> rows_;
};

}  // namespace kvsim::capture
