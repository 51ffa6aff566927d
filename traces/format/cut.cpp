#include "traces/format/cut.hpp"

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::trace {

std::string Cut::text() const {
  switch (at) {
    case At::prompt:
      return "prompt";
    case At::question:
      return "question";
    case At::position:
      return std::to_string(position);
  }
  bug("unknown cut");
}

Cut parse_cut(std::string_view text) {
  if (text == "prompt") return {};
  if (text == "question") return {Cut::At::question};
  const auto position = tokens_of(text);
  if (!position || *position == 0)
    usage_error("not a place to cut at", "cut '" + std::string(text) + "'",
                "A cut is `prompt` (the prompt's end), `question` (where the question begins) or a number of "
                "tokens from 1.");
  return {Cut::At::position, *position};
}

}  // namespace kvsim::trace
