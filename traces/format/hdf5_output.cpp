#include "traces/format/hdf5_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sim/base/error.hpp"

namespace kvsim::hdf5 {
namespace {

PropertyList creation_list(hid_t list_class, std::string_view where) {
  PropertyList list(check(H5Pcreate(list_class), "cannot make a property list", where));
  // Without object times, identical runs give identical files.
  check(H5Pset_obj_track_times(list.id(), false), "cannot turn off object times", where);
  return list;
}

PropertyList access_list(std::string_view where) {
  PropertyList list(check(H5Pcreate(H5P_FILE_ACCESS), "cannot make a property list", where));
  // From version 1.10 on, metadata carries checksums and a file that was not closed cannot be opened.
  check(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), "cannot set the file version",
        where);
  check(H5Pset_alignment(list.id(), 65536, 4096), "cannot set the alignment", where);
  return list;
}

Dataspace scalar_space(std::string_view where) {
  return Dataspace(check(H5Screate(H5S_SCALAR), "cannot make a dataspace", where));
}

void put_attribute(hid_t object, const std::string& name, hid_t type, const void* value,
                   std::string_view where) {
  const std::string what = "cannot write attribute " + name;
  const Dataspace space = scalar_space(where);
  const Attribute attribute(
      check(H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), what, where));
  check(H5Awrite(attribute.id(), type, value), what, where);
}

/// A fixed-length text type of at least one byte.
Datatype text_type(std::size_t bytes, std::string_view where) {
  Datatype type(check(H5Tcopy(H5T_C_S1), "cannot make a type", where));
  check(H5Tset_size(type.id(), std::max<std::size_t>(bytes, 1)), "cannot make a type", where);
  check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "cannot make a type", where);
  check(H5Tset_cset(type.id(), H5T_CSET_UTF8), "cannot make a type", where);
  return type;
}

/// A whole dataset at once, contiguous.
std::string put_dataset(hid_t parent, const std::string& name, const Datatype& element, const void* data,
                        const std::vector<hsize_t>& extent, std::string_view where, bool sealed) {
  const std::string what = "cannot write dataset " + name;
  const Dataspace space(
      check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), what, where));
  const PropertyList creation = creation_list(H5P_DATASET_CREATE, where);
  check(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), what, where);
  Dataset dataset(check(
      H5Dcreate2(parent, name.c_str(), element.id(), space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
      what, where));
  if (H5Sget_simple_extent_npoints(space.id()) > 0)
    check(H5Dwrite(dataset.id(), element.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), what, where);
  std::size_t bytes = H5Tget_size(element.id());
  for (const hsize_t dim : extent) bytes *= dim;
  std::string digest = digest_of({static_cast<const std::byte*>(data), bytes});
  if (sealed) put_text(dataset.id(), kSeal, digest, where);
  check(dataset.release(), what, where);
  return digest;
}

}  // namespace

OutputFile::OutputFile(const std::string& path, bool overwrite) : path_(path), partial_(path, overwrite) {
  target_.descriptor = partial_.file().get();
  target_.ours = true;
  const Session session;
  const PropertyList creation = creation_list(H5P_FILE_CREATE, path_);
  const PropertyList access = access_list(path_);
  use_target(access, target_);
  file_ = File(check(H5Fcreate(partial_.name().c_str(), H5F_ACC_TRUNC, creation.id(), access.id()),
                     "cannot be created", path_));
  put<std::uint8_t>(file_.id(), "complete", 0, path_);
}

OutputFile::OutputFile(const std::string& path, bool overwrite, const std::string& original)
    : path_(path), partial_(path, overwrite) {
  target_.descriptor = partial_.file().get();
  copy(original);
  const Session session;
  const PropertyList access(check(H5Pcreate(H5P_FILE_ACCESS), "cannot make a property list", path_));
  use_target(access, target_);
  file_ =
      File(check(H5Fopen(partial_.name().c_str(), H5F_ACC_RDWR, access.id()), "cannot be changed", path_));
  mark_complete(0);
}

void OutputFile::copy(const std::string& original) {
  const FileDescriptor from(::open(original.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.is_open()) system_error("cannot be opened", original);
  std::vector<char> block(std::size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(from.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error("cannot be read", original);
    if (got == 0) return;
    write_all(partial_.file(), {block.data(), static_cast<std::size_t>(got)}, path_);
    target_.bytes += static_cast<std::uint64_t>(got);
  }
}

void OutputFile::require_written() const {
  if (target_.failure == 0) return;
  errno = target_.failure;
  system_error("cannot be written", path_);
}

void OutputFile::mark_complete(std::uint8_t complete) {
  const Session session;
  const Attribute attribute(
      check(H5Aopen(file_.id(), "complete", H5P_DEFAULT), "cannot be completed", path_));
  check(H5Awrite(attribute.id(), H5T_STD_U8LE, &complete), "cannot be completed", path_);
}

void OutputFile::commit() {
  mark_complete(1);
  check(file_.release(), "cannot be closed", path_);
  require_written();
  partial_.commit();
}

Object create_group(hid_t parent, const std::string& name, std::string_view where) {
  const Session session;
  const PropertyList creation = creation_list(H5P_GROUP_CREATE, where);
  return Object(check(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                      "cannot create group " + name, where));
}

void put_text(hid_t object, const std::string& name, std::string_view text, std::string_view where) {
  if (text.size() > kMaxText || text.find('\0') != std::string_view::npos)
    input_error("text of attribute " + name + " is longer than 32 KiB or holds a NUL", where);
  const Session session;
  const Datatype type = text_type(text.size(), where);
  put_attribute(object, name, type.id(), text.empty() ? "" : text.data(), where);
}

void put_scalar(hid_t object, const std::string& name, Type type, const void* value, std::string_view where) {
  const Session session;
  put_attribute(object, name, datatype(type).id(), value, where);
}

std::string put_array(hid_t parent, const std::string& name, Type type, const void* data,
                      const std::vector<std::uint64_t>& dims, std::string_view where, bool sealed) {
  const Session session;
  return put_dataset(parent, name, datatype(type), data, {dims.begin(), dims.end()}, where, sealed);
}

void replace_seal(hid_t dataset, std::span<const std::byte> stored, std::string_view where) {
  const Session session;
  if (check(H5Aexists(dataset, kSeal), "attributes cannot be read", where) == 0) return;
  check(H5Adelete(dataset, kSeal), std::string("cannot replace attribute ") + kSeal, where);
  put_text(dataset, kSeal, digest_of(stored), where);
}

void put_texts(hid_t parent, const std::string& name, const std::vector<std::string>& texts,
               std::string_view where) {
  std::size_t longest = 1;
  for (const std::string& text : texts) {
    if (text.find('\0') != std::string::npos) input_error("a text of " + name + " holds a NUL", where);
    longest = std::max(longest, text.size());
  }
  std::string padded(longest * texts.size(), '\0');
  for (std::size_t i = 0; i < texts.size(); ++i) padded.replace(i * longest, texts[i].size(), texts[i]);
  const Session session;
  put_dataset(parent, name, text_type(longest, where), padded.data(), {texts.size()}, where, true);
}

GrowingDataset::GrowingDataset(hid_t parent, const std::string& name, Type type, std::uint64_t heads,
                               std::uint64_t chunk_rows, std::uint64_t dim, ChunkFilters filters,
                               std::string where)
    : heads_(heads), dim_(dim), where_(std::move(where)) {
  const Session session;
  const std::vector<hsize_t> start = extent(0);
  std::vector<hsize_t> limit = start, chunk = extent(chunk_rows);
  limit[1] = H5S_UNLIMITED;
  chunk[0] = 1;
  const int rank = static_cast<int>(start.size());
  const Dataspace space(
      check(H5Screate_simple(rank, start.data(), limit.data()), "cannot be created", where_));
  const PropertyList creation = creation_list(H5P_DATASET_CREATE, where_);
  check(H5Pset_chunk(creation.id(), rank, chunk.data()), "cannot be created", where_);
  check(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), "cannot be created", where_);
  if (filters.deflate > 0) {
    check(H5Pset_shuffle(creation.id()), "cannot be created", where_);
    check(H5Pset_deflate(creation.id(), filters.deflate), "cannot be created", where_);
  }
  if (filters.checksum) check(H5Pset_fletcher32(creation.id()), "cannot be created", where_);
  // Chunks are written whole, past the cache.
  const PropertyList access(check(H5Pcreate(H5P_DATASET_ACCESS), "cannot be created", where_));
  check(H5Pset_chunk_cache(access.id(), 1, 0, 0.0), "cannot be created", where_);
  dataset_ = Dataset(check(H5Dcreate2(parent, name.c_str(), datatype(type).id(), space.id(), H5P_DEFAULT,
                                      creation.id(), access.id()),
                           "cannot be created", where_));
}

std::vector<hsize_t> GrowingDataset::extent(std::uint64_t rows) const {
  std::vector<hsize_t> dims{heads_, rows};
  if (dim_ > 0) dims.push_back(dim_);
  return dims;
}

void GrowingDataset::append_chunks(std::span<const std::vector<std::byte>> chunks, std::uint64_t rows) {
  const Session session;
  std::vector<hsize_t> start(extent(0).size(), 0);
  start[1] = rows_;
  rows_ += rows;
  check(H5Dset_extent(dataset_.id(), extent(rows_).data()), "cannot grow", where_);
  for (const std::vector<std::byte>& chunk : chunks) {
    check(H5Dwrite_chunk(dataset_.id(), H5P_DEFAULT, 0, start.data(), chunk.size(), chunk.data()),
          "cannot be written", where_);
    ++start[0];
  }
}

void GrowingDataset::close() {
  const Session session;
  check(dataset_.release(), "cannot be closed", where_);
}

}  // namespace kvsim::hdf5
