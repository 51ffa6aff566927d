#pragma once
/// Where the rows of an assembled prompt come from (sim/loop/assembled_prompt.hpp): which runs to make, and
/// what of them to take; and those runs, as they are kept.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/loop/assembled_prompt.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/format/memory_trace.hpp"

namespace kvsim::analysis {

struct PieceOrigin {
  sim::Piece piece{};               ///< without its run
  std::vector<std::int32_t> ids{};  ///< of the run
};

/// The pieces of a prompt, ascending, without its last token. `documents`: tokens [begin, end), ascending.
/// `lead`: tokens that the tokenizer puts before every text. They come from the run
///   of the documents in reverse order (Choice::across), each where it stands there,
///   of the prompt without its new document, or of `before`, its earlier version (Choice::edit),
///   of each piece alone behind the lead (any other choice).
/// What stands before the first document is a piece of its own. Throws Error(usage) at `where` for a document
/// that the prompt does not have, and for an earlier version where there is none.
std::vector<PieceOrigin> piece_origins(std::span<const std::int32_t> ids,
                                       std::span<const std::int32_t> before,
                                       std::span<const workload::ByteSpan> documents, std::uint64_t lead,
                                       const sim::Assembly& assembly, const std::string& where);

/// Whether two ways take their pieces from the same runs.
bool same_origins(const sim::Assembly& a, const sim::Assembly& b);

/// Runs of documents alone, which several prompts share.
class DocumentRuns {
 public:
  using Run = std::shared_ptr<const trace::MemoryTrace>;
  /// What a run depends on: its tokens, and the model's rotation, which may depend on how long a text
  /// becomes.
  struct Key {
    std::vector<std::int32_t> ids;
    std::vector<float> frequencies;
    Elem elem = Elem::f32;
    std::uint64_t prefill_chunk = 0;
    bool operator==(const Key&) const = default;
  };

  /// The kept run, or else what `run` makes.
  Run find(Key key, const std::function<trace::MemoryTrace()>& run);
  /// Forgets all but the runs that were used last, of at most so many tokens together.
  void keep(std::uint64_t tokens);

 private:
  std::list<std::pair<Key, Run>> runs_;  // the one used last first
};

// Which documents a question asks for, by the words that they share.

/// Numbers of the `n` documents of the highest BM25, ascending; of equals the earlier one (Robertson &
/// Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", with k1 = 1.2, b = 0.75, and
/// ln(1 + (N - d + 0.5) / (d + 0.5)) of a word in d of N documents). Words are runs of letters and digits in
/// lower case, bytes beyond ASCII counted as letters; one that the question has twice counts once.
std::vector<std::size_t> retrieved_documents(const std::vector<std::string>& documents,
                                             const std::string& question, std::size_t n);

}  // namespace kvsim::analysis
