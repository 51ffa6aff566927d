#include "sim/base/field_names.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim {

FieldNames parse_field_names(const std::string& text, const std::vector<std::string>& known) {
  FieldNames out;
  if (text.empty()) return out;
  for (const std::string& entry : comma_list(text)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals + 1 == entry.size())
      usage_error(in_quotes(entry) + " is not NAME=FIELD", "--fields",
                  "Such as " + known.front() + "=name_in_the_file.");
    const std::string name = entry.substr(0, equals);
    if (std::ranges::find(known, name) == known.end())
      usage_error("knows no " + in_quotes(name), "--fields", suggestion(name, known));
    out.emplace_back(name, entry.substr(equals + 1));
  }
  return out;
}

}  // namespace kvsim
