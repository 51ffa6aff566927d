#pragma once
/// Writing HDF5 files that either exist complete under their name or not at all.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/format/hdf5_driver.hpp"
#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// A new file, empty or a copy of another to be changed. It grows as PATH.partial with the root attribute
/// `complete` = 0; commit() gives it its name. Errors are Error(input) (a partial is in the way, the
/// directory does not exist, the disk is full), except for an existing PATH without `overwrite`:
/// Error(usage).
class OutputFile {
 public:
  /// Refuses an existing PATH or PATH.partial unless `overwrite`; never touches a partial another process is
  /// writing.
  OutputFile(const std::string& path, bool overwrite);
  /// Begins with the bytes of `original`, an HDF5 file that has the attribute `complete`.
  OutputFile(const std::string& path, bool overwrite, const std::string& original);
  /// Without commit(): closes and removes the partial.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Valid until commit().
  hid_t id() const { return file_.id(); }
  const std::string& path() const { return path_; }
  /// Fails if a write failed since the file was created: libhdf5 itself never notices (hdf5_driver.hpp).
  /// commit() asks too; long writers ask in between, so as not to work for nothing.
  void require_written() const;
  /// Sets `complete` = 1, closes, syncs, renames, syncs the directory. Every other handle into the file must
  /// be gone.
  void commit();

 private:
  void refuse_existing() const;
  void create();
  void copy(const std::string& original);
  void mark_complete(std::uint8_t complete);
  void discard();

  std::string path_, partial_;
  bool overwrite_, renamed_ = false;
  Descriptor descriptor_;
  DriverTarget target_;
  File file_;  // last: closed before what it writes to
};

Object create_group(hid_t parent, const std::string& name, std::string_view where);

/// Attributes are scalars; text is fixed-length UTF-8 padded with NUL, at most 32 KiB, without NUL inside.
void put_text(hid_t object, const std::string& name, std::string_view text, std::string_view where);
void put_scalar(hid_t object, const std::string& name, Type type, const void* value, std::string_view where);
template <typename Value>
void put(hid_t object, const std::string& name, Value value, std::string_view where) {
  put_scalar(object, name, type_of<Value>(), &value, where);
}

/// The same in place of an attribute that is there.
template <typename Value>
void replace(hid_t object, const std::string& name, Value value, std::string_view where) {
  const Session session;
  check(H5Adelete(object, name.c_str()), "cannot replace attribute " + name, where);
  put(object, name, value, where);
}

/// A whole dataset at once, contiguous.
void put_array(hid_t parent, const std::string& name, Type type, const void* data,
               const std::vector<std::uint64_t>& dims, std::string_view where);
template <typename Value>
void put_list(hid_t parent, const std::string& name, const std::vector<Value>& values,
              std::string_view where) {
  put_array(parent, name, type_of<Value>(), values.data(), {values.size()}, where);
}

/// New values for all of a list that is there. Fails if it has another length.
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
  check(dataset.release(), what, where);
}

/// A list of texts as fixed-length UTF-8, as long as the longest, padded with NUL; without NUL inside.
void put_texts(hid_t parent, const std::string& name, const std::vector<std::string>& texts,
               std::string_view where);

/// A dataset [heads, rows, dim] (or [heads, rows] when dim is 0) that grows along its rows, one chunk of
/// every head at a time: anything less than whole chunks would be written many times over.
class GrowingDataset {
 public:
  GrowingDataset() = default;
  GrowingDataset(hid_t parent, const std::string& name, Type type, std::uint64_t heads,
                 std::uint64_t chunk_rows, std::uint64_t dim, bool checksum, std::string where);

  explicit operator bool() const { return static_cast<bool>(dataset_); }
  hid_t id() const { return dataset_.id(); }
  /// `block`: [heads, chunk_rows, dim] stored elements.
  void append_chunk(const void* block);
  /// Cuts the row axis to `rows`, which lie in the last chunk.
  void trim(std::uint64_t rows);
  /// Flushes and closes, reporting what the destructor could not.
  void close();

 private:
  std::vector<hsize_t> extent(std::uint64_t rows) const;
  Dataset dataset_;
  Datatype type_;
  std::uint64_t heads_ = 0, chunk_rows_ = 0, dim_ = 0, rows_ = 0;
  std::string where_;
};

}  // namespace kvsim::hdf5
