#pragma once
/// What a study finds in the folder its results go to: nothing, a study to go on with or to remove, or files
/// of others, which it leaves alone.
#include <boost/json/value.hpp>

#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_plan.hpp"

namespace kvsim::analysis {

enum class Existing {
  refuse,     ///< the folder must be empty
  go_on,      ///< keep the finished tasks of the study in it
  start_anew  ///< remove the study in it
};

/// Whether a study stands in the plan's folder. Throws Error(usage) when the folder holds something that
/// `existing` does not allow, and, to go on with a study, when its finished tasks would not fit those to come
/// (`effective`: the study as effective_study() has it). Notes edits that are taken over.
bool check_earlier_study(const StudyPlan& plan, Existing existing, const boost::json::object& effective,
                         const NoteListener& note);

/// Before the study goes on in `folder` or starts anew there: removes what it must not build on. That is the
/// whole study to start anew; to go on, finished work on traces that the study in the folder does not name,
/// because their content may have changed since. Throws Error(usage) rather than remove a trace that the plan
/// reads, and Error(input) if a finished task was changed since it was saved.
void clear_earlier_study(const StudyPlan& plan, Existing existing, StudyFolder& folder);

}  // namespace kvsim::analysis
