#pragma once
/// The prompts of a study, and the traces that are captured from them.
#include <string>
#include <vector>

#include "analysis/study/config/study_config.hpp"
#include "sim/base/error.hpp"
#include "sim/base/progress.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::analysis {

/// A prompt that will become a trace.
struct StudyPrompt {
  std::string name;            ///< of the trace
  std::string item;            ///< id in prompts.jsonl; empty: a file of the user's
  std::string file;            ///< the user's
  std::string workload;        ///< kind of prompt
  std::uint64_t tokens = 0;    ///< 0: not counted yet
  bool knows_context = false;  ///< and a question behind it, as its trace will
};

struct StudyPrompts {
  std::vector<StudyPrompt> prompts;
  std::string lines;  ///< content of prompts.jsonl
};

/// Makes the workloads' prompts with the model's tokenizer. Throws Error(usage) naming `where` and the entry
/// for kinds and options nobody knows, Error(input) for files that cannot be read.
StudyPrompts make_prompts(const StudyCapture& capture, const std::string& where);

/// The prompt as the closed loop answers it, under its trace's name. `prompts_file`: where the lines were
/// written. Throws Error(input) when it cannot be read.
capture::WorkloadItem item_of(const StudyPrompt& prompt, const std::string& prompts_file);

/// A prompt of the same kind that takes less work: its first `side` bytes, and its last ones, from its
/// question on where that begins earlier. Throws as item_of() does.
StudyPrompts shortened(const StudyCapture& capture, const StudyPrompt& prompt,
                       const std::string& prompts_file, std::uint64_t side);

/// Tokens of the prompt, counted now if they were not. Throws Error(input) when it cannot be read.
std::uint64_t prompt_tokens(const StudyCapture& capture, const StudyPrompt& prompt);

/// Runs the model on a prompt; the trace at `output` appears complete or not at all, and is the same bytes
/// whenever it is made here. `prompts_file`: where the lines were written.
void capture_prompt(const StudyCapture& capture, const StudyPrompt& prompt, const std::string& prompts_file,
                    const std::string& output, unsigned threads, Progress& progress,
                    const NoteListener& note);

}  // namespace kvsim::analysis
