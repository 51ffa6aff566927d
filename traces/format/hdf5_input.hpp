#pragma once
/// Reads HDF5 files from untrusted sources. Paths are fixed and resolved one component at a time over hard
/// links only; the type, shape and storage of every dataset and attribute are checked before a byte of it is
/// read or allocated. A file whose structure makes libhdf5's own parser crash is refused before that
/// (hdf5_scout.hpp).
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "traces/format/chunk_filters.hpp"
#include "traces/format/hdf5_driver.hpp"
#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// What a read does with the Fletcher32 checksums of a dataset that has them: a caller that verifies the data
/// itself ignores them.
enum class Checksum : std::uint8_t { verified, ignored };

/// A dataset that passed the checks: contiguous or chunked (chunks of at most 16 MiB), stored in this file,
/// fully allocated, with no filter but deflate, shuffle and fletcher32, of exactly one of the allowed types,
/// of the required rank, and with no more bytes than the file can hold. Everything else throws Error(input)
/// naming file and dataset.
class InputDataset {
 public:
  InputDataset() = default;
  InputDataset(Object object, std::string where, std::initializer_list<Type> allowed, std::size_t rank,
               std::uint64_t file_bytes);
  /// A list of fixed-length texts instead, under the same rules.
  InputDataset(Object object, std::string where, std::uint64_t file_bytes);

  Type type() const { return type_; }
  const std::vector<std::uint64_t>& dims() const { return dims_; }
  std::uint64_t bytes() const { return bytes_; }  ///< logical
  const std::string& where() const { return where_; }
  /// Throws Error(input) unless the extent is `expected`; `reason` says where that extent comes from.
  void expect(const std::vector<std::uint64_t>& expected, const char* reason) const;

  /// Reads a block into `out`, in stored elements. The caller has allocated count[0] * count[1] * ...
  /// elements. May be called from any thread; several inflate chunks at once.
  void read(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count, void* out,
            Checksum checksum = Checksum::verified) const;
  /// All of it. Throws Error(input) if it does not match the seal that it has, if any (hdf5_output.hpp).
  void read_all(void* out) const;
  /// The texts of a list.
  std::vector<std::string> read_texts() const;
  /// Has the system fetch the chunks that a block touches from the disk while others are worked on. Of
  /// contiguous datasets, which systems read ahead by themselves, nothing is fetched.
  void will_read(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count) const;
  bool is_sealed() const;
  /// A text attribute of the dataset, empty if there is none.
  std::string text(const std::string& name) const;
  /// An integer attribute within [0, max], as InputGroup::count() reads it.
  std::uint64_t count(const std::string& name, std::uint64_t max) const;

 private:
  void check_shape(std::size_t rank, std::uint64_t file_bytes);
  void check_storage(hid_t creation, std::uint64_t file_bytes);
  void check_filters(hid_t creation);
  std::uint64_t elements_of(const std::vector<std::uint64_t>& start,
                            const std::vector<std::uint64_t>& count) const;
  std::uint64_t chunk_bytes() const;
  void each_chunk(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count,
                  const std::function<void(const std::vector<std::uint64_t>&)>& body) const;
  std::uint64_t checksum_bytes() const;
  std::uint64_t stored_bytes(const std::vector<std::uint64_t>& at) const;
  std::uint32_t read_stored(const std::vector<std::uint64_t>& at, std::vector<std::byte>& out) const;
  [[noreturn]] void refuse_chunk(const std::vector<std::uint64_t>& at) const;
  void check_chunks(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count) const;
  void read_deflated(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count,
                     std::byte* out, Checksum checksum) const;

  Object object_;
  std::string where_;
  Type type_ = Type::f32;
  Datatype element_;
  std::uint64_t element_bytes_ = 0;
  std::vector<std::uint64_t> dims_, chunk_;  ///< chunk_ empty: contiguous
  std::uint64_t bytes_ = 0;
  std::vector<StoredFilter> filters_;  ///< in the order of writing
  bool deflated_ = false, checksum_ = false;
};

class InputGroup {
 public:
  InputGroup() = default;
  InputGroup(Object object, std::string file, std::string path, std::uint64_t file_bytes)
      : object_(std::move(object)), file_(std::move(file)), path_(std::move(path)), file_bytes_(file_bytes) {}

  /// Whether a link of that name exists. A link that is not a hard link is an error, not an absence.
  bool has(const std::string& name) const;
  InputGroup group(const std::string& name) const;
  InputDataset dataset(const std::string& name, std::initializer_list<Type> allowed, std::size_t rank) const;
  /// Whether the dataset of that name holds texts.
  bool holds_texts(const std::string& name) const;
  InputDataset texts(const std::string& name) const;

  bool has_attribute(const std::string& name) const;
  /// Fixed-length text of at most 32 KiB.
  std::string text(const std::string& name) const;
  /// Any integer type of up to 64 bits, within [0, max].
  std::uint64_t count(const std::string& name, std::uint64_t max) const;
  bool flag(const std::string& name) const { return count(name, 1) == 1; }
  /// Any signed integer type of up to 64 bits.
  std::int64_t integer(const std::string& name) const;
  /// Finite f32 or f64.
  double real(const std::string& name) const;
  /// "FILE:/path/name": how messages name an object of this group.
  std::string where(const std::string& name) const;

 private:
  Object child(const std::string& name, H5I_type_t kind) const;
  Object object_;
  std::string file_, path_;
  std::uint64_t file_bytes_ = 0;
};

/// Tells one file, and one state of it, from another.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;  ///< st_mtim
  auto operator<=>(const FileIdentity&) const = default;
};

class InputFile {
 public:
  explicit InputFile(const std::string& path);
  const InputGroup& root() const { return root_; }
  std::uint64_t bytes() const { return target_.bytes; }
  /// Throws Error(input) unless the path still names the file that was opened, of the same size and time of
  /// change: what was read of it in between may come from two files.
  void require_unchanged() const;

 private:
  std::string path_;
  FileIdentity identity_;
  // The order matters: later members are closed first.
  Descriptor descriptor_;
  DriverTarget target_;
  File file_;
  InputGroup root_;
};

}  // namespace kvsim::hdf5
