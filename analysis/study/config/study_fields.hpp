#pragma once
/// What a study file may say, told once: reading, messages about names nobody knows, defaults, the effective
/// configuration and `kvsim config reference` all follow from this list. analysis/study/STUDIES.md explains
/// it.
#include <boost/json/value.hpp>
#include <string>
#include <vector>

namespace kvsim::analysis {

enum class FieldType {
  text,
  whole,     ///< number without a fraction, from `low` to `high`
  number,    ///< from `low` to `high`
  flag,      ///< true or false
  texts,     ///< list of text; whole numbers count as text, one item may stand without its brackets
  wholes,    ///< list of whole numbers
  section,   ///< object with fields of its own; null: there is none
  sections,  ///< list of such objects
  anything,  ///< read by whoever knows; texts, numbers, flags and lists of them
  ignored,   ///< kvsim writes it for others
};

struct Field {
  const char* path;  ///< from the top: "capture.workloads[].context"; the last name "*" stands for any
  FieldType type;
  const char* standard;  ///< the default, as JSON; empty: it must be given
  const char*
      allowed;  ///< for people: "pairs | sentences", "0 or more"; "a | b" is checked as a list of words
  const char* description;
  double low = 0, high = 0;  ///< of numbers; high 0: without end
  /// Sections: a plain text in the section's place is this field of it ("files").
  const char* shorthand = "";
};

/// In the order in which they are written.
const std::vector<Field>& study_fields();

/// The same document with every field that was left out at its default, in order. Throws Error(usage) at
/// "`where` PATH" for names nobody knows (with the nearest), missing fields, wrong types and values out of
/// range.
boost::json::object complete_study(const boost::json::value& given, const std::string& where);

/// JSON for people to read: sections over several lines, small ones on one; numbers shortest-exact.
std::string readable_json(const boost::json::value& document);

}  // namespace kvsim::analysis
