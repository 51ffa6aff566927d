#include "tools/printing/note.hpp"

#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

void note(const std::string& text) {
  front_end().note(text);
}

}  // namespace kvsim::tools
