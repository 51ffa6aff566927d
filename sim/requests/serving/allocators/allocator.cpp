#include "sim/requests/serving/allocators/allocator.hpp"

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"

namespace kvsim::serving {
namespace {

constexpr const char* kAllocatorNames[] = {"static", "paged", "page_groups", "buddy"};

}  // namespace

const char* allocator_name(AllocatorKind kind) {
  return name_in(kAllocatorNames, kind);
}

AllocatorKind parse_allocator(std::string_view name) {
  return parse_named<AllocatorKind>(kAllocatorNames, name, "allocator");
}

std::unique_ptr<Allocator> make_allocator(AllocatorKind kind, const AllocatorSettings& settings) {
  if (settings.places == 0) usage_error("no sequence may run", "sequences at a time");
  const std::uint64_t piece = kind == AllocatorKind::static_max    ? settings.max_tokens
                              : kind == AllocatorKind::page_groups ? settings.page_group
                                                                   : settings.block;
  if (piece == 0) usage_error("pieces of no tokens", std::string("allocator ") + allocator_name(kind));
  if (settings.sizes) return make_bytes_allocator(kind, settings);
  if (settings.capacity < piece)
    usage_error("memory for " + std::to_string(settings.capacity) + " tokens, and the smallest piece is " +
                    std::to_string(piece),
                std::string("allocator ") + allocator_name(kind),
                "give more memory, or ask for smaller pieces");
  switch (kind) {
    case AllocatorKind::static_max:
      return make_static_allocator(settings);
    case AllocatorKind::paged:
      return make_paged_allocator(settings);
    case AllocatorKind::page_groups:
      return make_page_group_allocator(settings);
    case AllocatorKind::buddy:
      return make_buddy_allocator(settings);
  }
  bug("an allocator without a name");
}

}  // namespace kvsim::serving
