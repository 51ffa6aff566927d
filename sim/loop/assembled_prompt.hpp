#pragma once
/// A prompt put together from documents that were run alone or in another prompt: their keys and values,
/// rotated to where the documents stand, in place of the prompt's own. What no document covers is computed in
/// the prompt; so is a share of the documents' tokens, by the running model, layer by layer on what the
/// others have left.
///
/// A query attends the keys up to its own position, whatever is computed beside it. The code of CacheBlend
/// and LMCache leaves that to a kernel which takes the m rows that are computed for the last m of the
/// prompt's n: row r sees keys up to n - m + r, some of which come after it (Assembly::bottom_right).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "sim/replay/pieces.hpp"
#include "traces/format/memory_trace.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::sim {

/// Which tokens of documents are computed again.
struct Assembly {
  enum class Choice {
    none,
    first,   ///< the first `tokens` of each document, from layer 0 on (Hu et al. 2024, "EPIC", LegoLink)
    values,  ///< of all, after layers 0 and 1, those whose values in layer 1 deviate most (Yao et al. 2024,
             ///< "CacheBlend", as its code decides); the others keep layer 1 as computed in the prompt
    keys,    ///< the same by keys; the others keep layer 1 as stored (LMCache)
    across,  ///< Piece::again, from layer 0 on (Agarwal et al. 2025, "Cache-Craft"; chunk_context.hpp)
    edit,    ///< none of a prompt that was edited ("PIE")
    all,
  };
  Choice choice = Choice::none;
  std::uint64_t tokens = 0;  ///< Choice::first: of each document; Choice::edit: the document that
                             ///< is new, from 1; 0: the prompt has an earlier version
  double percent = 0;        ///< Choice::values, Choice::keys: of the documents' tokens, rounded down
  double alpha = 0;          ///< Choice::across: factor on the share
  bool bottom_right =
      false;           ///< Choice::values, Choice::keys: their code's mask, in place of that by position
  std::string name{};  ///< as asked
};

/// none, epic:N, cacheblend:P%, lmcache:P% (:bottom_right behind either), cachecraft:A, pie, pie:N or all.
/// Throws Error(usage) at `where` for anything else.
Assembly parse_assembly(const std::string& text, const std::string& where);

struct AssembledPrompt {
  trace::MemoryTrace trace;      ///< queries of documents are those of their own runs, rotated as keys are
  std::uint64_t layer_rows = 0;  ///< tokens that were computed, summed over layers
  double computed = 0;           ///< layer_rows as a share of all tokens in all layers
  /// Of the documents' tokens, those that were chosen, ascending.
  std::vector<std::uint64_t> chosen{};
};

/// Puts a prompt together. `placed`: of place_pieces(). Throws Error(usage) for a choice by layer 1 where
/// there is one layer.
AssembledPrompt assemble_prompt(const trace::MemoryTrace& placed, std::span<const std::int32_t> tokens,
                                std::span<const Piece> pieces, const model::ModelConfig& config,
                                const model::Weights& weights, const Assembly& assembly,
                                std::uint64_t positions, unsigned threads, Progress& progress);

/// Of the tokens with these deviations, the int(n * percent / 100) that deviate most, the first among equals;
/// ascending.
std::vector<std::size_t> most_deviating(std::span<const double> deviations, double percent);

}  // namespace kvsim::sim
