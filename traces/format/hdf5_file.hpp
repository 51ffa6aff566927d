#pragma once
/// What reading and writing HDF5 files share: identifiers that close themselves, return codes turned into
/// kvsim::Error, the element types of the schema, and the lock around HDF5 calls. hdf5_output.hpp writes;
/// hdf5_input.hpp reads files that are not trusted.
#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sim/base/half.hpp"

namespace kvsim::hdf5 {

inline constexpr std::size_t kMaxText = 32768;  ///< bytes of an attribute

/// Lock to hold around every sequence of HDF5 calls; reentrant within a thread. libhdf5 is thread-safe per
/// call at best, never per sequence. The first Session of the process disables filter plugins and external
/// links for good. The first Session of a thread turns off HDF5's printing of its errors.
class [[nodiscard]] Session {
 public:
  Session();
  /// Says that no other thread uses HDF5 in this process, a forked copy of one whose lock this thread held:
  /// from now on a Session locks nothing.
  static void only_thread();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Owns one identifier. Move-only.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() { release(); }

  hid_t id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes now; the destructor does the same but cannot report failure.
  herr_t release() {
    if (id_ < 0) return 0;
    const Session session;
    return Close(std::exchange(id_, H5I_INVALID_HID));
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using File = Handle<H5Fclose>;
using Object = Handle<H5Oclose>;
using Dataset = Handle<H5Dclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using Attribute = Handle<H5Aclose>;
using PropertyList = Handle<H5Pclose>;

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

/// Throws Error(input) with `what`, the cause that HDF5 recorded, and `where` (file and object).
[[noreturn]] void fail(std::string_view what, std::string_view where);
/// The innermost message on this thread's HDF5 error stack; the system's message if a system call failed.
std::string last_cause();

/// Returns `result`; calls fail() if it is negative.
template <typename Result>
Result check(Result result, std::string_view what, std::string_view where) {
  if (result < 0) fail(what, where);
  return result;
}

/// The element types of the schema, all little-endian. f16 and bf16 are 16-bit float types with the fields of
/// IEEE binary16 and of bfloat16; HDF5 1.10 has neither built in.
enum class Type : std::uint8_t { u8, u16, u32, u64, i32, i64, f32, f64, f16, bf16 };

std::size_t type_bytes(Type type);
std::string_view type_name(Type type);
Datatype datatype(Type type);
constexpr Type type_of(Elem elem) {
  return elem == Elem::f32 ? Type::f32 : elem == Elem::f16 ? Type::f16 : Type::bf16;
}

/// The schema's type of a C++ type; `char` counts as u8.
template <typename Value>
consteval Type type_of() {
  using std::is_same_v;
  if (is_same_v<Value, std::uint8_t> || is_same_v<Value, char>) return Type::u8;
  if (is_same_v<Value, std::uint16_t>) return Type::u16;
  if (is_same_v<Value, std::uint32_t>) return Type::u32;
  if (is_same_v<Value, std::uint64_t>) return Type::u64;
  if (is_same_v<Value, std::int32_t>) return Type::i32;
  if (is_same_v<Value, std::int64_t>) return Type::i64;
  if (is_same_v<Value, float>) return Type::f32;
  if (is_same_v<Value, double>) return Type::f64;
  throw "not an element type of the schema";
}

/// Throws std::bad_alloc if libhdf5 has just failed for want of memory: that says nothing of the file.
void refuse_lack_of_memory();

/// The attribute of a list that holds the SHA-256 of its stored bytes.
inline constexpr const char* kSeal = "sha256";
inline constexpr const char* kUnsealed =
    ": has no digests, as an earlier kvsim or another program made it; damage would not be noticed";
std::string digest_of(std::span<const std::byte> stored);

}  // namespace kvsim::hdf5
