#include "traces/model/tokenizers/token_table.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::model {
namespace {

constexpr std::size_t kMaxTableBytes = 256ULL << 20;

}  // namespace

void TokenTable::place(std::int32_t id, std::string bytes) {
  const auto index = static_cast<std::size_t>(id);
  if (bytes_.size() <= index) bytes_.resize(index + 1);
  const std::size_t total = total_ - bytes_[index].size() + bytes.size();
  if (total > kMaxTableBytes) input_error("the tokens stand for more than 256 MiB", "tokenizer");
  total_ = total;
  bytes_[index] = std::move(bytes);
}

const std::string& TokenTable::bytes(std::int32_t id) const {
  static const std::string kNothing;
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < bytes_.size() ? bytes_[index] : kNothing;
}

std::vector<std::string> TokenTable::spell(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  bool begins = leading_space_ != LeadingSpace::kept;
  for (const std::int32_t id : ids) {
    std::string& piece = pieces.emplace_back(bytes(id));
    if (is_special(id)) {
      begins = begins || leading_space_ == LeadingSpace::run_dropped;
    } else if (begins && !piece.empty()) {
      const std::size_t spaces = std::min(piece.find_first_not_of(' '), piece.size());
      piece.erase(0, leading_space_ == LeadingSpace::token_bared ? spaces : std::min<std::size_t>(spaces, 1));
      begins = false;
    }
  }
  return pieces;
}

}  // namespace kvsim::model
