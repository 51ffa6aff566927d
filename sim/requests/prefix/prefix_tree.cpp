#include "sim/requests/prefix/prefix_tree.hpp"

#include <boost/functional/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::prefix {
namespace {

using requests::BlockId;
using requests::Hashing;
using requests::Request;
using requests::RequestTrace;

std::string place(const RequestTrace& trace, const Request& request) {
  if (request.line > 0) return "line " + std::to_string(request.line);
  return "request " + std::to_string(&request - trace.requests.data());
}

class NodeNumbers {
 public:
  NodeNumbers(const RequestTrace& trace, std::vector<Node>& parents, std::vector<std::uint32_t>& depths)
      : trace_(trace), parents_(parents), depths_(depths) {}

  void append(const Request& request, std::span<const BlockId> ids, std::vector<Node>& path) {
    Node parent = kRoot;
    for (const BlockId id : ids) {
      parent = trace_.hashing == Hashing::chained ? chained(request, parent, id) : behind(parent, id);
      path.push_back(parent);
    }
  }

 private:
  Node chained(const Request& request, Node parent, BlockId id) {
    const auto [at, fresh] = chained_.try_emplace(id, Node{});
    if (fresh) return at->second = add(parent);
    if (parents_[at->second] != parent)
      input_error("block " + std::to_string(id) + " stands behind another prefix than before",
                  place(trace_, request),
                  "a chained id names a block and all before it; if ids name the blocks' tokens alone, say "
                  "--hash content");
    return at->second;
  }

  Node behind(Node parent, BlockId id) {
    const auto [at, fresh] = content_.try_emplace({parent, id}, Node{});
    if (fresh) at->second = add(parent);
    return at->second;
  }

  Node add(Node parent) {
    if (parents_.size() >= kRoot)
      input_error("the trace has more than 4,294,967,294 different blocks", trace_.format);
    parents_.push_back(parent);
    depths_.push_back(parent == kRoot ? 0 : depths_[parent] + 1);
    return static_cast<Node>(parents_.size() - 1);
  }

  const RequestTrace& trace_;
  std::vector<Node>& parents_;
  std::vector<std::uint32_t>& depths_;
  boost::unordered_flat_map<BlockId, Node> chained_;
  boost::unordered_flat_map<std::pair<Node, BlockId>, Node, boost::hash<std::pair<Node, BlockId>>> content_;
};

}  // namespace

PrefixTree::PrefixTree(const RequestTrace& trace) {
  if (!trace.has_blocks())
    usage_error("a trace of format " + trace.format + " does not say which prompts share tokens", {},
                "such a trace drives queues (kvsim requests serve), not prefix caches");
  NodeNumbers numbers(trace, parents_, depths_);
  prompts_.reserve(trace.requests.size() + 1);
  path_nodes_.reserve(trace.blocks.size());
  prompts_.push_back(0);
  const bool finals = trace.generated != requests::Generated::none;
  if (finals) finals_.push_back(0);
  for (const Request& request : trace.requests) {
    numbers.append(request, trace.prompt_blocks(request), path_nodes_);
    prompts_.push_back(path_nodes_.size());
    if (!finals) continue;
    if (request.n_final_blocks > 0) numbers.append(request, trace.final_blocks(request), final_nodes_);
    finals_.push_back(final_nodes_.size());
  }
}

std::span<const Node> PrefixTree::final_path(std::size_t request) const {
  if (finals_.empty() || finals_[request] == finals_[request + 1]) return prompt(request);
  return std::span(final_nodes_).subspan(finals_[request], finals_[request + 1] - finals_[request]);
}

}  // namespace kvsim::prefix
