#include "sim/base/guarded_allocation.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace kvsim {
namespace {

constexpr std::array<std::string_view, 4> kNames{"malloc", "calloc", "realloc", "free"};
constexpr std::size_t kGuard = std::size_t{64} << 10;
constexpr std::size_t kRegion = 16 * kGuard;  // asked for at once: a call of the system for several blocks
constexpr std::size_t kMostReserved = std::size_t{320} << 20;  // of address space

using Address = ElfW(Addr);
using Symbol = ElfW(Sym);
using Relocation = ElfW(Rela);
using Tag = ElfW(Dyn);
using Segment = ElfW(Phdr);
using Places = std::array<std::vector<void**>, kNames.size()>;

// Finding the calls ---------------------------------------------------------------------------------------

/// What the dynamic section of a loaded library says of its relocations.
struct Relocations {
  Address base = 0;
  const Symbol* symbols = nullptr;
  const char* names = nullptr;
  const Relocation *calls = nullptr, *others = nullptr;
  std::size_t call_bytes = 0, other_bytes = 0;

  Relocations(Address at, const Tag* tag) : base(at) {
    for (; tag->d_tag != DT_NULL; ++tag) {
      const Address value = tag->d_un.d_ptr;  // glibc's dynamic linker has made addresses of offsets
      if (tag->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Symbol*>(value);
      if (tag->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(value);
      if (tag->d_tag == DT_JMPREL) calls = reinterpret_cast<const Relocation*>(value);
      if (tag->d_tag == DT_PLTRELSZ) call_bytes = value;
      if (tag->d_tag == DT_RELA) others = reinterpret_cast<const Relocation*>(value);
      if (tag->d_tag == DT_RELASZ) other_bytes = value;
    }
  }

  void find(Places& places) const {
    if (symbols == nullptr || names == nullptr) return;
    find(calls, call_bytes, places);
    find(others, other_bytes, places);
  }

 private:
  void find(const Relocation* list, std::size_t bytes, Places& places) const {
    if (list == nullptr) return;
    for (const Relocation* one = list; one != list + bytes / sizeof *list; ++one) {
      const std::string_view name = names + symbols[ELF64_R_SYM(one->r_info)].st_name;
      for (std::size_t i = 0; i < kNames.size(); ++i)
        if (name == kNames[i]) places[i].push_back(reinterpret_cast<void**>(base + one->r_offset));
    }
  }
};

struct Search {
  const void* function;
  Places* places;
};

/// Called for each library of the process. Looks into the one that is searched; 1 ends the search.
int look_into(dl_phdr_info* library, std::size_t, void* data) {
  const Search& search = *static_cast<const Search*>(data);
  const auto address = reinterpret_cast<Address>(search.function);
  const Segment* const begin = library->dlpi_phdr;
  const Segment* const end = begin + library->dlpi_phnum;
  const bool here = std::any_of(begin, end, [&](const Segment& segment) {
    const Address first = library->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && address >= first && address - first < segment.p_memsz;
  });
  if (!here) return 0;
  for (const Segment* segment = begin; segment != end; ++segment) {
    if (segment->p_type != PT_DYNAMIC) continue;
    const auto* tags = reinterpret_cast<const Tag*>(library->dlpi_addr + segment->p_vaddr);
    Relocations(library->dlpi_addr, tags).find(*search.places);
  }
  return 1;
}

// The blocks ----------------------------------------------------------------------------------------------

std::size_t page_bytes() {
  static const auto kBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

/// Blocks that end where untouchable memory begins, to the byte. So a block's address is a multiple of those
/// powers of two (up to a page) of which its size is one, as is the size of a structure of its alignment.
class GuardedBlocks {
 public:
  /// Null for no bytes, and if there is no more address space for it.
  void* take(std::size_t bytes) {
    if (bytes == 0 || bytes > kMostReserved) return nullptr;
    const std::size_t held = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    std::byte* const pages = unused(held);
    if (pages == nullptr) return nullptr;
    void* const block = pages + held - bytes;
    blocks_.emplace(block, Block{pages, held, bytes});
    return block;
  }

  /// The size of a block; 0 if it is none of these.
  std::size_t size(const void* block) const {
    const auto found = blocks_.find(block);
    return found == blocks_.end() ? 0 : found->second.bytes;
  }

  void give_back(void* block) {
    const auto found = blocks_.find(block);
    const Block freed = found->second;
    unused_[freed.held].push_back(freed.pages);
    blocks_.erase(found);
  }

 private:
  struct Block {
    std::byte* pages;
    std::size_t held, bytes;
  };

  /// Pages with a guard behind them: those that have been unused for longest, or new ones.
  std::byte* unused(std::size_t held) {
    std::deque<std::byte*>& list = unused_[held];
    if (!list.empty()) {
      std::byte* const first = list.front();
      list.pop_front();
      return first;
    }
    const std::size_t all = held + kGuard;
    if (all > room_) {
      const std::size_t more = std::max(all, kRegion);
      if (more > kMostReserved - reserved_) return nullptr;
      void* const made = ::mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made == MAP_FAILED) return nullptr;
      next_ = static_cast<std::byte*>(made);
      room_ = more;
      reserved_ += more;
    }
    if (::mprotect(next_, held, PROT_READ | PROT_WRITE) != 0) return nullptr;
    room_ -= all;
    return std::exchange(next_, next_ + all);
  }

  std::unordered_map<const void*, Block> blocks_;
  std::unordered_map<std::size_t, std::deque<std::byte*>> unused_;
  std::byte* next_ = nullptr;  // of a region, of which `room_` bytes are left
  std::size_t room_ = 0, reserved_ = 0;
};

GuardedBlocks& blocks() {
  static GuardedBlocks blocks;
  return blocks;
}

void* guarded_malloc(std::size_t bytes) noexcept {
  void* const block = blocks().take(bytes);
  return block != nullptr ? block : std::malloc(bytes);
}

void* guarded_calloc(std::size_t count, std::size_t bytes) noexcept {
  if (bytes != 0 && count > kMostReserved / bytes) return std::calloc(count, bytes);
  void* const block = blocks().take(count * bytes);
  return block != nullptr ? std::memset(block, 0, count * bytes) : std::calloc(count, bytes);
}

void guarded_free(void* block) noexcept {
  if (blocks().size(block) == 0) return std::free(block);
  blocks().give_back(block);
}

void* guarded_realloc(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return guarded_malloc(bytes);
  const std::size_t before = blocks().size(block);
  if (before == 0) return std::realloc(block, bytes);
  if (bytes == 0) {
    blocks().give_back(block);
    return nullptr;
  }
  void* const larger = guarded_malloc(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, block, std::min(before, bytes));
  blocks().give_back(block);
  return larger;
}

}  // namespace

AllocationCalls::AllocationCalls(const void* function) {
  Search search{function, &places_};
  ::dl_iterate_phdr(look_into, &search);
}

bool AllocationCalls::found() const {
  return !places_.front().empty() && !places_.back().empty();
}

void AllocationCalls::guard() const {
  if (!found()) return;
  blocks();
  const std::array<void*, 4> functions{
      reinterpret_cast<void*>(guarded_malloc), reinterpret_cast<void*>(guarded_calloc),
      reinterpret_cast<void*>(guarded_realloc), reinterpret_cast<void*>(guarded_free)};
  // The table may have been made read-only once the library was loaded.
  for (const std::vector<void**>& places : places_) {
    for (void** const place : places) {
      const auto address = reinterpret_cast<Address>(place);
      auto* const page = reinterpret_cast<void*>(address / page_bytes() * page_bytes());
      if (::mprotect(page, page_bytes(), PROT_READ | PROT_WRITE) != 0) return;
    }
  }
  for (std::size_t i = 0; i < functions.size(); ++i)
    for (void** const place : places_[i]) *place = functions[i];
}

}  // namespace kvsim
