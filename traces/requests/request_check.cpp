#include "traces/requests/request_check.hpp"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <span>

namespace kvsim::requests {
namespace {

/// What stands before each id.
class Chains {
 public:
  /// The place of the first id that stands behind another than before; the number of ids: there is none.
  std::size_t broken_at(std::span<const BlockId> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Before before{i > 0, i > 0 ? ids[i - 1] : 0};
      const auto [at, fresh] = before_.try_emplace(ids[i], before);
      if (at->second.any != before.any || at->second.id != before.id) return i;
    }
    return ids.size();
  }

 private:
  struct Before {
    bool any = false;  ///< false: the id begins prompts
    BlockId id = 0;
  };
  boost::unordered_flat_map<BlockId, Before> before_;
};

}  // namespace

RequestCheck check_requests(const std::string& path, const ReadOptions& options, std::size_t most) {
  RequestCheck out;
  // Chains are looked at behind all other rules: the first lines of both kinds are kept, then put in order.
  std::vector<Violation> broken;
  const RequestTrace trace = read_on(path, options, [&](Violation violation) {
    ++out.bad_lines;
    if (out.first.size() < most) out.first.push_back(std::move(violation));
  });
  Chains chains;
  for (const Request& request : trace.requests) {
    const auto ids = trace.prompt_blocks(request);
    const std::size_t place = trace.hashing == Hashing::chained ? chains.broken_at(ids) : ids.size();
    if (place == ids.size()) {
      ++out.requests;
      out.blocks += ids.size();
      continue;
    }
    ++out.bad_lines;
    if (broken.size() == most) continue;
    broken.push_back(
        {request.line,
         "block " + std::to_string(ids[place]) + " at place " + std::to_string(place) +
             " of its prompt stands behind another prefix than before",
         "A chained id names a block and all before it; if ids name the blocks' tokens alone, say "
         "--hash content."});
  }
  out.first.insert(out.first.end(), broken.begin(), broken.end());
  std::sort(out.first.begin(), out.first.end(),
            [](const Violation& a, const Violation& b) { return a.line < b.line; });
  if (out.first.size() > most) out.first.resize(most);
  out.format = trace.format;
  return out;
}

}  // namespace kvsim::requests
