#pragma once
/// What a study file may say, declared once: reading, messages about names that are not known, defaults, the
/// effective configuration and `kvsim config reference` all follow from this list. analysis/study/STUDIES.md
/// explains it.
#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "sim/base/params.hpp"

namespace kvsim::analysis {

enum class FieldShape {
  value,     ///< as `param` declares it; one item of a list may stand without its brackets
  section,   ///< object with fields of its own; null: there is none
  sections,  ///< list of such objects
  anything,  ///< texts, numbers, flags and lists of them, which the field's reader checks
  ignored,   ///< kvsim writes it for others
};

struct Field {
  std::string path;  ///< from the top: "capture.workloads[].context"; the last name "*" stands for any
  FieldShape shape = FieldShape::value;
  /// Its name is the last of the path. What is no value has a default in JSON, and help.
  ParamSpec param{};
  /// Of sections: a plain text in the section's place is this field of it ("files").
  std::string shorthand{};
};

/// In the order in which they are written.
const std::vector<Field>& study_fields();

/// What a field that was left out holds. A required one has nothing.
boost::json::value default_of(const Field& field);

/// The same document with every field that was left out at its default, in order. Throws Error(usage) at
/// "`where` PATH" for names that are not known (with the nearest), missing fields, wrong types and values out
/// of range.
boost::json::object complete_study(const boost::json::value& given, const std::string& where);

/// JSON for people to read: sections over several lines, small ones on one; numbers shortest-exact.
std::string readable_json(const boost::json::value& document);
/// The same on one line.
std::string json_line(const boost::json::value& value);

}  // namespace kvsim::analysis
