// Memory in bytes, for sequences whose tokens do not all take the same: layers with a window hold no more
// than that, a state is as large for every length, and a representation codes some tokens and not others.
// What a sequence takes is what cost::sequence_bytes says. Blocks are of the tokens of layers that hold as
// many, as in vLLM's hybrid manager; all lie in one memory, which no size of blocks cuts into pieces.
#include <algorithm>
#include <string>

#include "sim/base/error.hpp"
#include "sim/requests/serving/allocators/allocator.hpp"

namespace kvsim::serving {
namespace {

class BytesAllocator final : public Allocator {
 public:
  BytesAllocator(AllocatorKind kind, const AllocatorSettings& settings)
      : Allocator(settings.capacity, settings.places),
        settings_(settings),
        piece_(kind == AllocatorKind::static_max ? settings.sizes({.kept = settings.max_tokens}).all() : 0),
        longest_(longest_in_bytes(settings)),
        held_(settings.places) {}

  std::uint64_t longest() const override {
    return piece_ > 0 ? std::min(settings_.max_tokens, longest_) : longest_;
  }
  bool holds(std::uint64_t kept, std::uint64_t appended) const override {
    if (kept + appended > longest()) return false;
    if (piece_ > 0 || settings_.sizes_by_total) return true;
    for (std::uint64_t i = 0; i <= appended; ++i)
      if (settings_.sizes({kept, i}).all() > capacity() || settings_.sizes({kept + i, 0}).all() > capacity())
        return false;
    return true;
  }
  std::vector<Run> runs(Place, std::uint64_t tokens) const override {
    std::vector<Run> out;
    if (piece_ > 0)
      append_run(out, 0, tokens);
    else  // every block is taken as lying alone
      for (std::uint64_t begin = 0; begin < tokens; begin += settings_.block)
        out.push_back({2 * begin, std::min(settings_.block, tokens - begin)});
    return out;
  }
  MemoryUse use() const override { return {used_, reserved_, 0}; }

 protected:
  bool reserve(Place place, std::uint64_t tokens) override {
    held_[place].kept = tokens;
    return extend(place, tokens);
  }
  /// Asked for every token: room() is what the sequence has.
  bool extend(Place place, std::uint64_t tokens) override {
    Held& held = held_[place];
    const cost::SequenceBytes size = size_of({held.kept, tokens - held.kept});
    const std::uint64_t reserved = std::max(piece_, size.all());
    if (piece_ > 0 && tokens > settings_.max_tokens) return false;
    if (reserved > held.reserved && reserved - held.reserved > capacity() - reserved_) return false;
    used_ = used_ - held.used + size.stored;
    reserved_ = reserved_ - held.reserved + reserved;
    held.used = size.stored;
    held.reserved = reserved;
    count_pieces(held, piece_ > 0 ? 1 : cost::ceil_divided(tokens, settings_.block));
    set_room(place, tokens);
    return true;
  }
  void release(Place place) override {
    Held& held = held_[place];
    used_ -= held.used;
    reserved_ -= held.reserved;
    operations_.unmaps += held.pieces;
    held = {};
    set_room(place, 0);
  }

 private:
  struct Held {
    std::uint64_t kept = 0;  ///< tokens that were stored as a prompt
    std::uint64_t used = 0, reserved = 0, pieces = 0;
  };

  /// Pieces of the layers that hold most.
  void count_pieces(Held& held, std::uint64_t pieces) {
    operations_.maps += pieces - held.pieces;
    held.pieces = pieces;
  }

  cost::SequenceBytes size_of(const cost::LaneTokens& tokens) {
    if (!settings_.sizes_by_total) return settings_.sizes(tokens);
    if (tokens.all() >= known_.size())
      known_.resize(std::max<std::size_t>(tokens.all() + 1, 2 * known_.size()));
    cost::SequenceBytes& size = known_[tokens.all()];
    if (size.stored == 0) size = settings_.sizes(tokens);
    return size;
  }

  const AllocatorSettings settings_;
  const std::uint64_t piece_;  ///< bytes of each sequence; 0: as many as it needs
  const std::uint64_t longest_;
  std::uint64_t used_ = 0, reserved_ = 0;
  std::vector<Held> held_;                    ///< by place
  std::vector<cost::SequenceBytes> known_{};  ///< by tokens; nothing stored: not asked yet
};

}  // namespace

std::uint64_t longest_in_bytes(const AllocatorSettings& settings) {
  const auto fits = [&](std::uint64_t tokens) {
    return settings.sizes({.kept = tokens}).all() <= settings.capacity;
  };
  std::uint64_t low = 0, high = 1;
  while (high < kAnyLength && fits(high)) low = high, high *= 2;
  if (high >= kAnyLength) return kAnyLength;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::unique_ptr<Allocator> make_bytes_allocator(AllocatorKind kind, const AllocatorSettings& settings) {
  const std::string where = std::string("allocator ") + allocator_name(kind);
  if (kind != AllocatorKind::paged && kind != AllocatorKind::static_max)
    usage_error("counts tokens that take as much as any other, and those of this cache do not", where,
                "use paged or static");
  const std::uint64_t least =
      settings.sizes({.kept = kind == AllocatorKind::static_max ? settings.max_tokens : 1}).all();
  if (settings.capacity < least)
    usage_error("memory of " + std::to_string(settings.capacity) + " bytes, and the smallest piece has " +
                    std::to_string(least),
                where, "give more memory, or ask for smaller pieces");
  return std::make_unique<BytesAllocator>(kind, settings);
}

}  // namespace kvsim::serving
