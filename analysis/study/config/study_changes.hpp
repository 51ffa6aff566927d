#pragma once
/// A study edited between two runs: what goes on, and what cannot.
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kvsim::analysis {

/// The first place where two documents differ.
struct StudyConflict {
  std::string path, was, is;  ///< "budgets[2]", values as JSON; "nothing" for what is not there
  bool input = false;         ///< a file that the study reads has another content
};

struct StudyChanges {
  /// Finished tasks would have other results: policies, budgets, scopes, how prompts are captured, the
  /// content of a trace, kvsim's own schema of results.
  std::optional<StudyConflict> conflict{};
  /// For people: what is taken over (more traces, other statistics, ...).
  std::vector<std::string> taken_over{};
};

/// `was`: the study.json that is there. `is`: that of the study to go on with. Both effective; where `was`
/// has `inputs`, files are compared by their contents, wherever they lie.
StudyChanges study_changes(const boost::json::object& was, const boost::json::object& is);

}  // namespace kvsim::analysis
