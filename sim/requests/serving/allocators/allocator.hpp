#pragma once
/// Gives the memory of a cache to sequences whose length is not known in advance. One file each way; what
/// they leave unused, and in how many pieces a sequence lies, is what they differ in.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/checked.hpp"
#include "sim/cost/memory.hpp"

namespace kvsim::serving {

/// A place among the running sequences, from 0; reused when a sequence leaves.
using Place = std::uint32_t;

/// Tokens that lie beside each other in memory, in each of a layer's tensors.
struct Run {
  std::uint64_t begin = 0, length = 0;
  bool operator==(const Run&) const = default;
};

/// How much of a memory is taken, in its unit: tokens, or bytes where not every token takes the same.
struct MemoryUse {
  std::uint64_t used = 0;      ///< by tokens of sequences, computed or about to be; shared ones once
  std::uint64_t reserved = 0;  ///< memory that sequences have
  std::uint64_t kept = 0;      ///< memory of no sequence that is kept for later ones
  bool operator==(const MemoryUse&) const = default;
};

/// What was done so far, in pieces of the allocator's own size.
struct Operations {
  std::uint64_t maps = 0;    ///< pieces given to sequences
  std::uint64_t unmaps = 0;  ///< pieces taken back from sequences, or from places that kept them
};

/// Bytes of a sequence whose first tokens were stored as a prompt, and others one by one behind them.
using SequenceSizes = std::function<cost::SequenceBytes(const cost::LaneTokens&)>;

class Allocator {
 public:
  /// `capacity`: tokens that the memory holds; bytes where not every token takes the same.
  Allocator(std::uint64_t capacity, std::uint32_t places)
      : capacity_(capacity), room_(places, 0), used_(places, 0) {}
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Gives a sequence at a free place room for `tokens` tokens; false, and nothing is changed, where there is
  /// none.
  bool enter(Place place, std::uint64_t tokens) {
    if (!reserve(place, tokens)) return false;
    set_used(place, tokens);
    return true;
  }
  /// Makes room for `tokens` tokens in all, at least as many as before; false, and nothing is changed, where
  /// there is none.
  bool grow(Place place, std::uint64_t tokens) {
    if (tokens > room_[place] && !extend(place, tokens)) return false;
    set_used(place, tokens);
    return true;
  }
  void leave(Place place) {
    release(place);
    set_used(place, 0);
  }

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t room(Place place) const { return room_[place]; }
  virtual MemoryUse use() const { return {all_used_, reserved_, 0}; }
  const Operations& operations() const { return operations_; }
  /// The most tokens that one sequence can have when it is alone.
  virtual std::uint64_t longest() const = 0;
  /// Whether a sequence can have all these when it is alone; `appended` of them come one by one, and may have
  /// to be stored once more as part of the prompt.
  virtual bool holds(std::uint64_t kept, std::uint64_t appended) const {
    return kept + appended <= longest();
  }
  /// Where a sequence's first `tokens` tokens lie, at most its room, in order, neighbours merged.
  virtual std::vector<Run> runs(Place place, std::uint64_t tokens) const = 0;

 protected:
  virtual bool reserve(Place place, std::uint64_t tokens) = 0;
  virtual bool extend(Place place, std::uint64_t tokens) = 0;
  virtual void release(Place place) = 0;

  std::uint64_t used(Place place) const { return used_[place]; }
  void set_room(Place place, std::uint64_t tokens) {
    reserved_ = reserved_ - room_[place] + tokens;
    room_[place] = tokens;
  }
  std::size_t places() const { return room_.size(); }
  Operations operations_{};

 private:
  void set_used(Place place, std::uint64_t tokens) {
    all_used_ = all_used_ - used_[place] + tokens;
    used_[place] = tokens;
  }

  const std::uint64_t capacity_;
  std::uint64_t all_used_ = 0, reserved_ = 0;
  std::vector<std::uint64_t> room_, used_;  ///< tokens by place
};

/// What allocators are made of.
struct AllocatorSettings {
  std::uint64_t capacity = 0;    ///< tokens, or bytes with `sizes`
  std::uint32_t places = 0;      ///< sequences that run at a time, at most
  std::uint64_t block = 16;      ///< tokens of a block: paged, buddy
  std::uint64_t max_tokens = 0;  ///< of a sequence: static
  std::uint64_t page_group = 0;  ///< tokens of a page group: page_groups
  /// Where not every token takes the same (static and paged alone); nothing: every token is one of
  /// `capacity`.
  SequenceSizes sizes{};
  bool sizes_by_total = true;  ///< kept and appended tokens take the same
};

/// What no sequence is as long as.
inline constexpr std::uint64_t kAnyLength = std::uint64_t{1} << 40;
/// The most tokens of a sequence that `sizes` lets the memory hold; kAnyLength: more than any has.
std::uint64_t longest_in_bytes(const AllocatorSettings& settings);

/// The ways, in the order of traces/requests/README.md.
enum class AllocatorKind {
  static_max,   ///< max_tokens for each sequence from its start
  paged,        ///< blocks as they fill, from a queue of free ones (vLLM: Kwon et al. 2023)
  page_groups,  ///< pages mapped behind contiguous virtual memory (vAttention: Prabhu et al. 2025)
  buddy,        ///< groups of neighbouring blocks, split under pressure (FastSwitch: Shen et al. 2024)
};
const char* allocator_name(AllocatorKind kind);
/// Throws Error(usage) with the nearest names.
AllocatorKind parse_allocator(std::string_view name);

/// Throws Error(usage) for a memory without a single piece, or no places.
std::unique_ptr<Allocator> make_allocator(AllocatorKind kind, const AllocatorSettings& settings);

std::unique_ptr<Allocator> make_static_allocator(const AllocatorSettings& settings);
std::unique_ptr<Allocator> make_paged_allocator(const AllocatorSettings& settings);
std::unique_ptr<Allocator> make_page_group_allocator(const AllocatorSettings& settings);
std::unique_ptr<Allocator> make_buddy_allocator(const AllocatorSettings& settings);
std::unique_ptr<Allocator> make_bytes_allocator(AllocatorKind kind, const AllocatorSettings& settings);

/// Appends `length` tokens to runs, merged with the last one where they follow it.
inline void append_run(std::vector<Run>& runs, std::uint64_t begin, std::uint64_t length) {
  if (length == 0) return;
  if (!runs.empty() && runs.back().begin + runs.back().length == begin)
    runs.back().length += length;
  else
    runs.push_back({begin, length});
}

}  // namespace kvsim::serving
