// Blocks of a few tokens, each anywhere in memory (Kwon et al. 2023). Free blocks wait in a queue: they are
// taken from its head, and a sequence's return to its end, the last one first.
#include <algorithm>
#include <deque>

#include "sim/requests/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

class PagedAllocator final : public Allocator {
 public:
  explicit PagedAllocator(const AllocatorSettings& settings)
      : Allocator(settings.capacity, settings.places),
        block_(settings.block),
        blocks_(settings.capacity / settings.block),
        tables_(settings.places) {}

  std::uint64_t longest() const override { return blocks_ * block_; }
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override {
    std::vector<Run> out;
    for (const std::uint64_t block : tables_[place]) {
      const std::uint64_t here = std::min(tokens, block_);
      append_run(out, block * block_, here);
      tokens -= here;
    }
    return out;
  }

 protected:
  bool reserve(Place place, std::uint64_t tokens) override { return extend(place, tokens); }
  bool extend(Place place, std::uint64_t tokens) override {
    std::vector<std::uint64_t>& table = tables_[place];
    const std::uint64_t needed = cost::ceil_divided(tokens, block_), more = needed - table.size();
    if (more > free_.size() + (blocks_ - touched_)) return false;
    for (std::uint64_t i = 0; i < more; ++i) table.push_back(take());
    operations_.maps += more;
    set_room(place, table.size() * block_);
    return true;
  }
  void release(Place place) override {
    std::vector<std::uint64_t>& table = tables_[place];
    operations_.unmaps += table.size();
    free_.insert(free_.end(), table.rbegin(), table.rend());
    table.clear();
    set_room(place, 0);
  }

 private:
  /// Blocks that nobody has had yet stand at the head of the queue, and are not written into it.
  std::uint64_t take() {
    if (touched_ < blocks_) return touched_++;
    const std::uint64_t block = free_.front();
    free_.pop_front();
    return block;
  }

  const std::uint64_t block_, blocks_;
  std::uint64_t touched_ = 0;
  std::deque<std::uint64_t> free_{};
  std::vector<std::vector<std::uint64_t>> tables_;
};

}  // namespace

std::unique_ptr<Allocator> make_paged_allocator(const AllocatorSettings& settings) {
  return std::make_unique<PagedAllocator>(settings);
}

}  // namespace kvsim::serving
