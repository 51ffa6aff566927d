#include "traces/format/hdf5_file.hpp"

#include <unistd.h>

#include <bit>
#include <new>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"

namespace kvsim::hdf5 {
namespace {

static_assert(std::endian::native == std::endian::little, "stored little-endian words are used as they lie");

/// After a fork the lock belongs to a thread of the parent.
bool alone = false;

std::recursive_mutex& process_lock() {
  static std::recursive_mutex lock;
  return lock;
}

void close_doors() {
  H5dont_atexit();  // files are closed one by one; where memory was lacking, closing all of it again crashes
  if (H5open() < 0 || H5PLset_loading_state(0) < 0) throw std::bad_alloc();  // nothing else can be wrong
  // Unregistering twice is an error, so query the state first.
  if (H5Lis_registered(H5L_TYPE_EXTERNAL) > 0 && H5Lunregister(H5L_TYPE_EXTERNAL) < 0)
    bug("libhdf5 keeps following external links");
}

herr_t find_lack(unsigned, const H5E_error2_t* entry, void* lacks) {
  if (entry->min_num == H5E_NOSPACE || entry->min_num == H5E_CANTALLOC) *static_cast<bool*>(lacks) = true;
  return 0;
}

herr_t keep_first(unsigned depth, const H5E_error2_t* entry, void* text) {
  if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

/// A 16-bit float type: the sign in the top bit, then `exponent_bits`, then the mantissa.
Datatype half_type(std::size_t exponent_bits, std::size_t bias) {
  Datatype type(H5Tcopy(H5T_IEEE_F32LE));
  const std::size_t mantissa_bits = 15 - exponent_bits;
  // Fields before size: HDF5 refuses to cut a type below its fields.
  if (!type || H5Tset_fields(type.id(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
      H5Tset_size(type.id(), 2) < 0 || H5Tset_ebias(type.id(), bias) < 0)
    fail("libhdf5 refuses a 16-bit float type", "");
  return type;
}

}  // namespace

void Session::only_thread() {
  alone = true;
}

Session::Session() : lock_(process_lock(), std::defer_lock) {
  if (!alone) lock_.lock();
  static const bool started = (close_doors(), true);
  // In a thread-safe libhdf5 each thread has its own error stack and its own setting for printing it.
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  if (!started || !quiet) throw std::bad_alloc();  // nothing else can be wrong with it
}

Descriptor::~Descriptor() {
  if (fd >= 0) ::close(fd);
}

std::string last_cause() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  // "file write failed: time = ..., errno = 28, error message = 'No space left on device', buf = ..."
  static constexpr std::string_view kMark = "error message = '";
  const std::size_t begin = text.find(kMark);
  if (begin == std::string::npos) return text;
  const std::size_t end = text.find('\'', begin + kMark.size());
  return text.substr(begin + kMark.size(), end == std::string::npos ? end : end - begin - kMark.size());
}

void refuse_lack_of_memory() {
  bool lacks = false;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_lack, &lacks);
  // The copy that looks at a file first has memory enough for a sound one.
  if (lacks && !alone) throw std::bad_alloc();
}

void fail(std::string_view what, std::string_view where) {
  refuse_lack_of_memory();
  const std::string cause = last_cause();
  std::string text(what);
  if (!cause.empty()) text += ": " + cause;
  const bool full =
      cause == "No space left on device" || cause == "File too large" || cause == "Disk quota exceeded";
  input_error(text, where, full ? "Free some space or write somewhere else, then run it again." : "");
}

std::size_t type_bytes(Type type) {
  static constexpr std::size_t kBytes[] = {1, 2, 4, 8, 4, 8, 4, 8, 2, 2};
  return kBytes[static_cast<std::size_t>(type)];
}

std::string_view type_name(Type type) {
  static constexpr std::string_view kNames[] = {"u8",  "u16", "u32", "u64", "i32",
                                                "i64", "f32", "f64", "f16", "bf16"};
  return kNames[static_cast<std::size_t>(type)];
}

Datatype datatype(Type type) {
  const Session session;
  if (type == Type::f16) return half_type(5, 15);
  if (type == Type::bf16) return half_type(8, 127);
  const hid_t builtin[] = {H5T_STD_U8LE,  H5T_STD_U16LE, H5T_STD_U32LE,  H5T_STD_U64LE,
                           H5T_STD_I32LE, H5T_STD_I64LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  const hid_t known = builtin[static_cast<std::size_t>(type)];
  return Datatype(check(H5Tcopy(known), "cannot make a type", type_name(type)));
}

std::string digest_of(std::span<const std::byte> stored) {
  Sha256 digest;
  digest.update(stored.data(), stored.size());
  return digest.hex();
}

}  // namespace kvsim::hdf5
