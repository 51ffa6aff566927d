#pragma once
/// Which documents a question asks for, by the words that they share.
#include <string>
#include <vector>

namespace kvsim::analysis {

/// Numbers of the `n` documents of the highest BM25, ascending; of equals the earlier one (Robertson &
/// Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", with k1 = 1.2, b = 0.75, and
/// ln(1 + (N - d + 0.5) / (d + 0.5)) of a word in d of N documents). Words are runs of letters and digits in
/// lower case, bytes beyond ASCII counted as letters; one that the question has twice counts once.
std::vector<std::size_t> retrieved_documents(const std::vector<std::string>& documents,
                                             const std::string& question, std::size_t n);

}  // namespace kvsim::analysis
