#pragma once
/// Writes HDF5 files that appear under their name only when they are complete.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/partial_file.hpp"
#include "traces/format/chunk_filters.hpp"
#include "traces/format/hdf5_driver.hpp"
#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// A new file: empty, or a copy of another that is to be changed. Until commit() it is a PartialFile with the
/// root attribute `complete` = 0. Throws as PartialFile does, and Error(input) when the disk is full.
class OutputFile {
 public:
  OutputFile(const std::string& path, bool overwrite);
  /// Starts as a copy of `original`, an HDF5 file that has the attribute `complete`.
  OutputFile(const std::string& path, bool overwrite, const std::string& original);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Valid until commit().
  hid_t id() const { return file_.id(); }
  const std::string& path() const { return path_; }
  /// Throws Error(input) if a write has failed since the file was created, which libhdf5 itself does not
  /// notice (hdf5_driver.hpp). commit() calls it too; long writers call it in between to stop early.
  void require_written() const;
  /// Sets `complete` = 1, closes the file and gives it its name. Every other handle into the file must have
  /// been closed.
  void commit();

 private:
  void copy(const std::string& original);
  void mark_complete(std::uint8_t complete);

  std::string path_;
  PartialFile partial_;
  DriverTarget target_;
  File file_;  // last member: closed before the descriptor it writes to
};

Object create_group(hid_t parent, const std::string& name, std::string_view where);

/// Writes a scalar attribute. Text is fixed-length UTF-8 padded with NUL, at most 32 KiB, without NUL inside.
void put_text(hid_t object, const std::string& name, std::string_view text, std::string_view where);
void put_scalar(hid_t object, const std::string& name, Type type, const void* value, std::string_view where);
template <typename Value>
void put(hid_t object, const std::string& name, Value value, std::string_view where) {
  put_scalar(object, name, type_of<Value>(), &value, where);
}

/// Replaces an existing attribute.
template <typename Value>
void replace(hid_t object, const std::string& name, Value value, std::string_view where) {
  const Session session;
  check(H5Adelete(object, name.c_str()), "cannot replace attribute " + name, where);
  put(object, name, value, where);
}

/// Writes a whole dataset at once, contiguous, and unless `sealed` is false the SHA-256 of its stored bytes
/// as attribute `sha256`: contiguous datasets carry no checksum of their own. Returns the digest.
std::string put_array(hid_t parent, const std::string& name, Type type, const void* data,
                      const std::vector<std::uint64_t>& dims, std::string_view where, bool sealed = true);
template <typename Value>
void put_list(hid_t parent, const std::string& name, const std::vector<Value>& values,
              std::string_view where) {
  put_array(parent, name, type_of<Value>(), values.data(), {values.size()}, where);
}

/// Puts the digest of other values in the place of the one that a dataset has, if any.
void replace_seal(hid_t dataset, std::span<const std::byte> stored, std::string_view where);

/// Overwrites all values of an existing list, and its seal. Throws Error(input) if it has another length.
template <typename Value>
void replace_list(hid_t parent, const std::string& name, const std::vector<Value>& values,
                  std::string_view where) {
  const Session session;
  const std::string what = "cannot replace dataset " + name;
  Dataset dataset(check(H5Dopen2(parent, name.c_str(), H5P_DEFAULT), what, where));
  const hsize_t length = values.size();
  const Dataspace memory(check(H5Screate_simple(1, &length, nullptr), what, where));
  check(H5Dwrite(dataset.id(), datatype(type_of<Value>()).id(), memory.id(), H5S_ALL, H5P_DEFAULT,
                 values.data()),
        what, where);
  replace_seal(dataset.id(), std::as_bytes(std::span(values)), where);
  check(dataset.release(), what, where);
}

/// Writes a sealed list of texts as fixed-length UTF-8, as long as the longest, padded with NUL; no text may
/// contain a NUL.
void put_texts(hid_t parent, const std::string& name, const std::vector<std::string>& texts,
               std::string_view where);

/// A dataset [heads, rows, dim] (or [heads, rows] when dim is 0) that grows along its rows by one chunk of
/// every head at a time: libhdf5 would write a partly filled chunk again with every append.
class GrowingDataset {
 public:
  GrowingDataset() = default;
  GrowingDataset(hid_t parent, const std::string& name, Type type, std::uint64_t heads,
                 std::uint64_t chunk_rows, std::uint64_t dim, ChunkFilters filters, std::string where);

  explicit operator bool() const { return static_cast<bool>(dataset_); }
  hid_t id() const { return dataset_.id(); }
  /// Appends the next chunk of every head, filtered as this dataset's are (chunk_filters.hpp), and says how
  /// many of their rows belong to it: fewer than chunk_rows only in the last ones. Trimming it instead would
  /// have libhdf5 filter these once more.
  void append_chunks(std::span<const std::vector<std::byte>> chunks, std::uint64_t rows);
  /// Flushes and closes; unlike the destructor it reports failures.
  void close();

 private:
  std::vector<hsize_t> extent(std::uint64_t rows) const;
  Dataset dataset_;
  std::uint64_t heads_ = 0, dim_ = 0, rows_ = 0;
  std::string where_;
};

}  // namespace kvsim::hdf5
