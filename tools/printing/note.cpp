#include "tools/printing/note.hpp"

#include <iostream>

namespace kvsim::tools {

void note(const std::string& text) {
  std::cerr << "kvsim: note: " << text << '\n';
}

}  // namespace kvsim::tools
