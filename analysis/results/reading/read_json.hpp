#pragma once
/// Tables of kvsim read back from json: the results of a document, or json lines.
#include <string>
#include <string_view>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// `results` of a json document as write_document() writes it, with its columns described if it describes
/// them. Throws Error(input); `where` names the text in messages.
Records parse_json_document(std::string_view text, const std::string& where);
/// One object per line, all with the keys of the first.
Records parse_json_lines(std::string_view text, const std::string& where);

}  // namespace kvsim::analysis
