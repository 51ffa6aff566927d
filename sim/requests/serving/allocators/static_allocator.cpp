// One contiguous piece per sequence, as long as the longest sequence may become.
#include <algorithm>

#include "sim/requests/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

class StaticAllocator final : public Allocator {
 public:
  explicit StaticAllocator(const AllocatorSettings& settings)
      : Allocator(settings.capacity, settings.places),
        piece_(settings.max_tokens),
        begins_(settings.places, 0) {
    const std::uint64_t pieces =
        std::min<std::uint64_t>(settings.capacity / piece_, settings.places);  // no more can be in use
    for (std::uint64_t i = pieces; i-- > 0;) free_.push_back(i * piece_);
  }

  std::uint64_t longest() const override { return piece_; }
  std::vector<Run> runs(Place place, std::uint64_t tokens) const override {
    std::vector<Run> out;
    append_run(out, begins_[place], tokens);
    return out;
  }

 protected:
  bool reserve(Place place, std::uint64_t tokens) override {
    if (free_.empty() || tokens > piece_) return false;
    begins_[place] = free_.back();
    free_.pop_back();
    set_room(place, piece_);
    ++operations_.maps;
    return true;
  }
  bool extend(Place, std::uint64_t) override { return false; }
  void release(Place place) override {
    free_.push_back(begins_[place]);
    set_room(place, 0);
    ++operations_.unmaps;
  }

 private:
  const std::uint64_t piece_;
  std::vector<std::uint64_t> begins_, free_;
};

}  // namespace

std::unique_ptr<Allocator> make_static_allocator(const AllocatorSettings& settings) {
  return std::make_unique<StaticAllocator>(settings);
}

}  // namespace kvsim::serving
