// Keeps everything: the reference every other policy is measured against.
#include <numeric>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {
namespace {

class Full final : public Eviction {
 public:
  void finish_prompt(const Prompt& /*prompt*/) override {}
  void compress(std::size_t /*budget*/, std::span<Position> keep) const override {
    std::iota(keep.begin(), keep.end(), Position{0});
  }
};

}  // namespace

PolicySpec full_spec() {
  return {.name = "full",
          .aliases = {"fullkv"},
          .kind = Kind::eviction,
          .summary = "keeps everything, whatever the budget",
          .details =
              "The reference: no position ever leaves, so its attention loss is 0 at every budget and the "
              "tokens it keeps are those of the whole sequence.",
          .unbounded = true,
          .make_eviction = [](const Params&, const Unit&) { return std::make_unique<Full>(); }};
}

}  // namespace kvsim::policy
