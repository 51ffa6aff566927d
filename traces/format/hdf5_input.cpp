#include "traces/format/hdf5_input.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/shortage.hpp"
#include "traces/format/hdf5_scout.hpp"

namespace kvsim::hdf5 {
namespace {

constexpr std::uint64_t kMaxChunkBytes = 16ULL << 20;
// libhdf5 inflates a chunk without a bound of its own; these limits keep one chunk below about 1 GiB.
constexpr std::uint64_t kMaxDeflatedChunkBytes = 1ULL << 20;
constexpr std::uint64_t kMaxInflation = 1100;  ///< deflate itself cannot exceed about 1032

/// a * b, or the largest value if the product overflows.
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

std::uint64_t chunks_along(std::uint64_t extent, std::uint64_t chunk) {
  return extent / chunk + (extent % chunk != 0 ? 1 : 0);
}

std::string shape_text(const std::vector<std::uint64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

std::string type_list(std::initializer_list<Type> types) {
  std::string text;
  for (const Type type : types) text += (text.empty() ? "" : " or ") + std::string(type_name(type));
  return text;
}

const char* kind_name(H5I_type_t kind) {
  return kind == H5I_GROUP ? "a group" : kind == H5I_DATASET ? "a dataset" : "neither group nor dataset";
}

H5L_type_t link_kind(hid_t parent, const std::string& name, std::string_view where) {
#if H5_VERSION_GE(1, 12, 0)
  H5L_info2_t info{};
  check(H5Lget_info2(parent, name.c_str(), &info, H5P_DEFAULT), "link cannot be read", where);
#else
  H5L_info_t info{};
  check(H5Lget_info(parent, name.c_str(), &info, H5P_DEFAULT), "link cannot be read", where);
#endif
  return info.type;
}

Attribute open_attribute(hid_t object, const std::string& name, std::string_view where) {
  if (check(H5Aexists(object, name.c_str()), "attributes cannot be read", where) == 0)
    input_error("attribute " + name + " is missing", where);
  Attribute attribute(
      check(H5Aopen(object, name.c_str(), H5P_DEFAULT), "attribute " + name + " cannot be read", where));
  const Dataspace space(check(H5Aget_space(attribute.id()), "attribute " + name + " cannot be read", where));
  if (H5Sget_simple_extent_type(space.id()) != H5S_SCALAR)
    input_error("attribute " + name + " is not a single value", where);
  return attribute;
}

Datatype attribute_type(const Attribute& attribute, const std::string& name, H5T_class_t wanted,
                        std::size_t max_bytes, const char* expected, std::string_view where) {
  Datatype type(check(H5Aget_type(attribute.id()), "attribute " + name + " cannot be read", where));
  const std::size_t bytes = H5Tget_size(type.id());
  if (H5Tget_class(type.id()) != wanted || bytes == 0 || bytes > max_bytes)
    input_error("attribute " + name + " is not " + expected, where);
  return type;
}

std::string read_text(hid_t object, const std::string& name, std::string_view where) {
  const Session session;
  const Attribute attribute = open_attribute(object, name, where);
  static constexpr const char* kExpected = "fixed-length text of at most 32 KiB";
  const Datatype type = attribute_type(attribute, name, H5T_STRING, kMaxText, kExpected, where);
  // A variable-length string has the size of a pointer, so it has passed the bound above.
  if (check(H5Tis_variable_str(type.id()), "attribute " + name + " cannot be read", where) > 0)
    input_error("attribute " + name + " is not " + kExpected, where);
  std::string text(H5Tget_size(type.id()), '\0');
  check(H5Aread(attribute.id(), type.id(), text.data()), "attribute " + name + " cannot be read", where);
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::uint64_t read_count(hid_t object, const std::string& name, std::uint64_t max, const std::string& place) {
  const Session session;
  const Attribute attribute = open_attribute(object, name, place);
  const Datatype type =
      attribute_type(attribute, name, H5T_INTEGER, 8, "an integer of at most 64 bits", place);
  std::uint64_t value = 0;
  if (H5Tget_sign(type.id()) == H5T_SGN_NONE) {
    check(H5Aread(attribute.id(), H5T_NATIVE_UINT64, &value), "attribute " + name + " cannot be read", place);
  } else {
    std::int64_t wide = 0;
    check(H5Aread(attribute.id(), H5T_NATIVE_INT64, &wide), "attribute " + name + " cannot be read", place);
    if (wide < 0) input_error("attribute " + name + " is negative", place);
    value = static_cast<std::uint64_t>(wide);
  }
  if (value > max)
    input_error("attribute " + name + " is " + std::to_string(value) + ", more than " + std::to_string(max),
                place);
  return value;
}

/// Properties of reads that leave Fletcher32 checksums aside. libhdf5 closes them at the end of the process.
hid_t unchecked_transfer() {
  static const hid_t list = [] {
    const hid_t made = check(H5Pcreate(H5P_DATASET_XFER), "cannot make a property list", "libhdf5");
    check(H5Pset_edc_check(made, H5Z_DISABLE_EDC), "cannot turn off checksums", "libhdf5");
    return made;
  }();
  return list;
}

FileIdentity identity_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
          std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

/// One look at a state of a file is enough for a process. The caller holds a Session.
void scout_once(const std::string& path, const PropertyList& access, const FileIdentity& identity) {
  static std::set<FileIdentity> sound;
  if (sound.contains(identity)) return;
  scout(path, access);
  sound.insert(identity);
}

}  // namespace

InputDataset::InputDataset(Object object, std::string where, std::initializer_list<Type> allowed,
                           std::size_t rank, std::uint64_t file_bytes)
    : object_(std::move(object)), where_(std::move(where)) {
  const Session session;
  const Datatype stored(check(H5Dget_type(object_.id()), "type cannot be read", where_));
  bool known = false;
  for (const Type candidate : allowed) {
    Datatype type = datatype(candidate);
    if (known || H5Tequal(type.id(), stored.id()) <= 0) continue;
    known = true;
    type_ = candidate;
    element_ = std::move(type);
  }
  if (!known) input_error("element type is not " + type_list(allowed), where_);
  element_bytes_ = type_bytes(type_);
  check_shape(rank, file_bytes);
}

InputDataset::InputDataset(Object object, std::string where, std::uint64_t file_bytes)
    : object_(std::move(object)), where_(std::move(where)) {
  const Session session;
  element_ = Datatype(check(H5Dget_type(object_.id()), "type cannot be read", where_));
  if (H5Tget_class(element_.id()) != H5T_STRING ||
      check(H5Tis_variable_str(element_.id()), "type cannot be read", where_) > 0)
    input_error("element type is not fixed-length text", where_);
  element_bytes_ = H5Tget_size(element_.id());
  if (element_bytes_ == 0) input_error("element type has no bytes", where_);
  check_shape(1, file_bytes);
}

void InputDataset::check_shape(std::size_t rank, std::uint64_t file_bytes) {
  const Dataspace space(check(H5Dget_space(object_.id()), "shape cannot be read", where_));
  std::array<hsize_t, H5S_MAX_RANK> extent{};
  const int stored_rank = H5Sget_simple_extent_type(space.id()) == H5S_SIMPLE
                              ? H5Sget_simple_extent_dims(space.id(), extent.data(), nullptr)
                              : -1;
  if (stored_rank < 0 || static_cast<std::size_t>(stored_rank) != rank)
    input_error("does not have " + std::to_string(rank) + " dimension" + (rank == 1 ? "" : "s"), where_);
  dims_.assign(extent.begin(), extent.begin() + stored_rank);
  bytes_ = element_bytes_;
  for (const std::uint64_t dim : dims_) bytes_ = product(bytes_, dim);

  const PropertyList creation(check(H5Dget_create_plist(object_.id()), "layout cannot be read", where_));
  check_storage(creation.id(), file_bytes);
}

void InputDataset::check_storage(hid_t creation, std::uint64_t file_bytes) {
  const H5D_layout_t layout = H5Pget_layout(creation);
  if (layout == H5D_VIRTUAL) input_error("is a virtual dataset: its data lie in other files", where_);
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED)
    input_error("is neither contiguous nor chunked", where_);
  if (check(H5Pget_external_count(creation), "layout cannot be read", where_) != 0)
    input_error("keeps its data in external files", where_);
  check_filters(creation);
  if (layout != H5D_CHUNKED && !filters_.empty()) input_error("has filters, but no chunks", where_);

  std::uint64_t allocated_min = bytes_;  // bytes that storage must hold if nothing is deflated
  std::uint64_t n_chunks = 1;
  if (layout == H5D_CHUNKED) {
    std::array<hsize_t, H5S_MAX_RANK> shape{};
    const int rank = H5Pget_chunk(creation, H5S_MAX_RANK, shape.data());
    if (rank < 0 || static_cast<std::size_t>(rank) != dims_.size())
      fail("chunk shape cannot be read", where_);
    chunk_.assign(shape.begin(), shape.begin() + rank);
    std::uint64_t chunk_bytes = element_bytes_;
    for (std::size_t i = 0; i < chunk_.size(); ++i) {
      if (chunk_[i] == 0) input_error("has empty chunks", where_);
      chunk_bytes = product(chunk_bytes, chunk_[i]);
      n_chunks = product(n_chunks, chunks_along(dims_[i], chunk_[i]));
    }
    const std::uint64_t limit = deflated_ ? kMaxDeflatedChunkBytes : kMaxChunkBytes;
    if (chunk_bytes > limit)
      input_error("chunks are larger than " + std::to_string(limit >> 20) + " MiB", where_);
    allocated_min = product(n_chunks, chunk_bytes);
  }
  if (bytes_ == 0) return;
  const std::uint64_t stored = H5Dget_storage_size(object_.id());
  if (stored > file_bytes) input_error("claims more bytes than the file has", where_);
  const bool enough = deflated_ ? bytes_ / kMaxInflation <= stored : allocated_min <= stored;
  if (!enough)
    input_error(
        "shape " + shape_text(dims_) + " needs far more than the " + std::to_string(stored) + " bytes stored",
        where_);
  if (layout != H5D_CHUNKED) return;
  const Dataspace space(check(H5Dget_space(object_.id()), "shape cannot be read", where_));
  hsize_t allocated = 0;
  check(H5Dget_num_chunks(object_.id(), space.id(), &allocated), "chunks cannot be counted", where_);
  if (allocated != n_chunks)
    input_error("has " + std::to_string(allocated) + " of its " + std::to_string(n_chunks) + " chunks",
                where_);
}

void InputDataset::check_filters(hid_t creation) {
  const int count = check(H5Pget_nfilters(creation), "filters cannot be read", where_);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0, value = 1;
    std::size_t values = 1;
    const H5Z_filter_t filter =
        H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, &value, 0, nullptr, &config);
    filters_.push_back({filter, values == 0 ? 1 : value});
    if (filter == H5Z_FILTER_DEFLATE) {
      if (deflated_) input_error("is deflated twice", where_);
      deflated_ = true;
    } else if (filter == H5Z_FILTER_FLETCHER32) {
      checksum_ = true;
    } else if (filter != H5Z_FILTER_SHUFFLE) {
      input_error(
          "uses filter " + std::to_string(filter) + "; only deflate, shuffle and fletcher32 are accepted",
          where_, "h5repack -f NONE rewrites it without.");
    }
  }
}

void InputDataset::expect(const std::vector<std::uint64_t>& expected, const char* reason) const {
  if (dims_ != expected)
    input_error("has shape " + shape_text(dims_) + ", but " + reason + " makes it " + shape_text(expected),
                where_);
}

std::uint64_t InputDataset::chunk_bytes() const {
  std::uint64_t bytes = element_bytes_;
  for (const std::uint64_t edge : chunk_) bytes *= edge;
  return bytes;
}

/// Calls body(first element) for each chunk that a block touches.
void InputDataset::each_chunk(const std::vector<std::uint64_t>& start,
                              const std::vector<std::uint64_t>& count,
                              const std::function<void(const std::vector<std::uint64_t>&)>& body) const {
  std::vector<std::uint64_t> first(start.size());
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = start[i] / chunk_[i] * chunk_[i];
  std::vector<std::uint64_t> at = first;
  while (true) {
    body(at);
    std::size_t axis = at.size();
    while (axis > 0) {
      --axis;
      at[axis] += chunk_[axis];
      if (at[axis] < start[axis] + count[axis]) break;
      at[axis] = first[axis];
      if (axis == 0) return;
    }
  }
}

/// Returns the bytes that checksums add to a chunk.
std::uint64_t InputDataset::checksum_bytes() const {
  return kChecksumBytes *
         static_cast<std::uint64_t>(std::ranges::count(filters_, H5Z_FILTER_FLETCHER32, &StoredFilter::kind));
}

/// Returns the bytes that a chunk takes in the file.
std::uint64_t InputDataset::stored_bytes(const std::vector<std::uint64_t>& at) const {
  const std::vector<hsize_t> chunk(at.begin(), at.end());
  hsize_t stored = 0;
  check(H5Dget_chunk_storage_size(object_.id(), chunk.data(), &stored), "chunk cannot be found", where_);
  // The most that zlib and the checksums add to data that cannot be compressed.
  const std::uint64_t bytes = chunk_bytes();
  if (stored > bytes + bytes / 1000 + 64 + checksum_bytes())
    input_error("holds a chunk larger than its data", where_);
  return stored;
}

/// Reads a chunk as it lies in the file. Bit i of what it returns says that filter i was not applied to it.
std::uint32_t InputDataset::read_stored(const std::vector<std::uint64_t>& at,
                                        std::vector<std::byte>& out) const {
  const Session session;
  const std::vector<hsize_t> chunk(at.begin(), at.end());
  std::uint32_t left_out = 0;
  out.resize(stored_bytes(at));
  if (!out.empty())
    check(H5Dread_chunk(object_.id(), H5P_DEFAULT, chunk.data(), &left_out, out.data()),
          "chunk cannot be read", where_);
  return left_out;
}

void InputDataset::refuse_chunk(const std::vector<std::uint64_t>& at) const {
  input_error("the chunk at " + shape_text(at) + " does not hold the " + std::to_string(chunk_bytes()) +
                  " bytes of a chunk",
              where_, "The file is damaged: take a sound copy of it.");
}

/// Requires that the chunks of a block, without compression, hold a chunk each: libhdf5 copies a whole chunk
/// out of shorter ones, too.
void InputDataset::check_chunks(const std::vector<std::uint64_t>& start,
                                const std::vector<std::uint64_t>& count) const {
  each_chunk(start, count, [&](const std::vector<std::uint64_t>& at) {
    if (stored_bytes(at) == chunk_bytes() + checksum_bytes()) return;
    std::vector<std::byte> stored, chunk(chunk_bytes());
    const std::uint32_t left_out = read_stored(at, stored);
    if (unfilter(stored, filters_, left_out, false, chunk) == Unfiltered::wrong_size) refuse_chunk(at);
  });
}

/// Filters are undone outside the lock around libhdf5, and copied from each chunk is what lies in the block.
void InputDataset::read_deflated(const std::vector<std::uint64_t>& start,
                                 const std::vector<std::uint64_t>& count, std::byte* out,
                                 Checksum checksum) const {
  const std::size_t rank = start.size(), last = rank - 1;
  std::vector<std::byte> stored, chunk(chunk_bytes());
  each_chunk(start, count, [&](const std::vector<std::uint64_t>& at) {
    const std::uint32_t left_out = read_stored(at, stored);
    const Unfiltered found = unfilter(stored, filters_, left_out, checksum == Checksum::verified, chunk);
    if (found == Unfiltered::wrong_size) refuse_chunk(at);
    if (found == Unfiltered::wrong_checksum)
      input_error("the chunk at " + shape_text(at) + " does not match its Fletcher32 checksum", where_,
                  "The file is damaged: take a sound copy of it.");
    std::vector<std::uint64_t> from(rank), to(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      from[i] = std::max(start[i], at[i]);
      to[i] = std::min(start[i] + count[i], at[i] + chunk_[i]);
    }
    // Runs along the last axis, one after another.
    const std::size_t run = (to[last] - from[last]) * element_bytes_;
    for (std::vector<std::uint64_t> run_at = from;;) {
      std::uint64_t in_chunk = 0, in_block = 0;
      for (std::size_t i = 0; i < rank; ++i) {
        in_chunk = in_chunk * chunk_[i] + (run_at[i] - at[i]);
        in_block = in_block * count[i] + (run_at[i] - start[i]);
      }
      std::memcpy(out + in_block * element_bytes_, chunk.data() + in_chunk * element_bytes_, run);
      std::size_t axis = last;
      while (axis > 0 && ++run_at[axis - 1] == to[axis - 1]) {
        run_at[axis - 1] = from[axis - 1];
        --axis;
      }
      if (axis == 0) break;
    }
  });
}

void InputDataset::will_read(const std::vector<std::uint64_t>& start,
                             const std::vector<std::uint64_t>& count) const {
  if (elements_of(start, count) == 0 || chunk_.empty()) return;
  const FetchOnly fetch;
  std::vector<std::byte> unused;
  each_chunk(start, count, [&](const std::vector<std::uint64_t>& at) { read_stored(at, unused); });
}

/// Returns the number of elements of a block, which must lie within the dataset.
std::uint64_t InputDataset::elements_of(const std::vector<std::uint64_t>& start,
                                        const std::vector<std::uint64_t>& count) const {
  if (start.size() != dims_.size() || count.size() != dims_.size()) bug("read of the wrong rank", where_);
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (start[i] > dims_[i] || count[i] > dims_[i] - start[i]) bug("read beyond the end", where_);
    elements *= count[i];
  }
  return elements;
}

void InputDataset::read(const std::vector<std::uint64_t>& start, const std::vector<std::uint64_t>& count,
                        void* out, Checksum checksum) const {
  if (elements_of(start, count) == 0) return;
  if (deflated_) return read_deflated(start, count, static_cast<std::byte*>(out), checksum);
  const Session session;
  // libhdf5 reads just the bytes of chunks without filters.
  if (!filters_.empty()) check_chunks(start, count);
  const std::vector<hsize_t> from(start.begin(), start.end()), block(count.begin(), count.end());
  const Dataspace file(check(H5Dget_space(object_.id()), "cannot be read", where_));
  check(H5Sselect_hyperslab(file.id(), H5S_SELECT_SET, from.data(), nullptr, block.data(), nullptr),
        "cannot be read", where_);
  const Dataspace memory(check(H5Screate_simple(static_cast<int>(block.size()), block.data(), nullptr),
                               "cannot be read", where_));
  // The memory type is the stored type, so libhdf5 converts nothing.
  const hid_t transfer = checksum == Checksum::ignored && checksum_ ? unchecked_transfer() : H5P_DEFAULT;
  check(H5Dread(object_.id(), element_.id(), memory.id(), file.id(), transfer, out),
        "cannot be read at " + shape_text(start), where_);
}

bool InputDataset::is_sealed() const {
  return chunk_.empty() && !text(kSeal).empty();
}

void InputDataset::read_all(void* out) const {
  read(std::vector<std::uint64_t>(dims_.size(), 0), dims_, out);
  if (is_sealed() && text(kSeal) != digest_of({static_cast<const std::byte*>(out), bytes_}))
    input_error("is damaged: it does not match its sha256", where_,
                "Take a sound copy of the file, or make it again.");
}

std::vector<std::string> InputDataset::read_texts() const {
  std::string padded(bytes_, '\0');
  read_all(padded.data());
  std::vector<std::string> out;
  out.reserve(dims_.at(0));
  for (std::uint64_t i = 0; i < dims_.at(0); ++i) {
    const std::string_view field(padded.data() + i * element_bytes_, element_bytes_);
    out.emplace_back(field.substr(0, field.find('\0')));
  }
  return out;
}

std::string InputDataset::text(const std::string& name) const {
  const Session session;
  if (check(H5Aexists(object_.id(), name.c_str()), "attributes cannot be read", where_) == 0) return {};
  return read_text(object_.id(), name, where_);
}

std::uint64_t InputDataset::count(const std::string& name, std::uint64_t max) const {
  return read_count(object_.id(), name, max, where_);
}

std::string InputGroup::where(const std::string& name) const {
  return file_ + ":" + (path_ == "/" ? "" : path_) + "/" + name;
}

bool InputGroup::has(const std::string& name) const {
  const Session session;
  if (check(H5Lexists(object_.id(), name.c_str(), H5P_DEFAULT), "links cannot be read", where(name)) == 0)
    return false;
  const H5L_type_t kind = link_kind(object_.id(), name, where(name));
  if (kind == H5L_TYPE_HARD) return true;
  const char* what = kind == H5L_TYPE_SOFT       ? "is a soft link"
                     : kind == H5L_TYPE_EXTERNAL ? "is an external link"
                                                 : "is a user-defined link";
  input_error(std::string(what) + "; a trace holds its own data", where(name));
}

Object InputGroup::child(const std::string& name, H5I_type_t kind) const {
  if (!has(name)) input_error("is missing", where(name));
  Object object(check(H5Oopen(object_.id(), name.c_str(), H5P_DEFAULT), "cannot be opened", where(name)));
  const H5I_type_t found = H5Iget_type(object.id());
  if (found != kind)
    input_error(std::string("is ") + kind_name(found) + ", not " + kind_name(kind), where(name));
  return object;
}

InputGroup InputGroup::group(const std::string& name) const {
  const Session session;
  return {child(name, H5I_GROUP), file_, (path_ == "/" ? "" : path_) + "/" + name, file_bytes_};
}

InputDataset InputGroup::dataset(const std::string& name, std::initializer_list<Type> allowed,
                                 std::size_t rank) const {
  const Session session;
  return {child(name, H5I_DATASET), where(name), allowed, rank, file_bytes_};
}

bool InputGroup::holds_texts(const std::string& name) const {
  const Session session;
  const Object object = child(name, H5I_DATASET);
  const Datatype type(check(H5Dget_type(object.id()), "type cannot be read", where(name)));
  return H5Tget_class(type.id()) == H5T_STRING;
}

InputDataset InputGroup::texts(const std::string& name) const {
  const Session session;
  return {child(name, H5I_DATASET), where(name), file_bytes_};
}

bool InputGroup::has_attribute(const std::string& name) const {
  const Session session;
  return check(H5Aexists(object_.id(), name.c_str()), "attributes cannot be read", file_ + ":" + path_) > 0;
}

std::string InputGroup::text(const std::string& name) const {
  return read_text(object_.id(), name, file_ + ":" + path_);
}

std::uint64_t InputGroup::count(const std::string& name, std::uint64_t max) const {
  return read_count(object_.id(), name, max, file_ + ":" + path_);
}

std::int64_t InputGroup::integer(const std::string& name) const {
  const Session session;
  const std::string place = file_ + ":" + path_;
  const Attribute attribute = open_attribute(object_.id(), name, place);
  const Datatype type =
      attribute_type(attribute, name, H5T_INTEGER, 8, "an integer of at most 64 bits", place);
  if (H5Tget_sign(type.id()) == H5T_SGN_NONE) input_error("attribute " + name + " has no sign", place);
  std::int64_t value = 0;
  check(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "attribute " + name + " cannot be read", place);
  return value;
}

double InputGroup::real(const std::string& name) const {
  const Session session;
  const std::string place = file_ + ":" + path_;
  const Attribute attribute = open_attribute(object_.id(), name, place);
  const Datatype type =
      attribute_type(attribute, name, H5T_FLOAT, 8, "a real number of at most 64 bits", place);
  if (H5Tequal(type.id(), H5T_IEEE_F64LE) <= 0 && H5Tequal(type.id(), H5T_IEEE_F32LE) <= 0)
    input_error("attribute " + name + " is not f32 or f64", place);
  double value = 0;
  check(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), "attribute " + name + " cannot be read", place);
  if (!std::isfinite(value)) input_error("attribute " + name + " is not finite", place);
  return value;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  const Session session;
  refuse_partial(path);
  // Opens without blocking, so that a pipe is refused instead of waited for.
  descriptor_.fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat info {};
  if (descriptor_.fd < 0 || ::fstat(descriptor_.fd, &info) != 0) {
    refuse_shortage(errno, "cannot be opened", path);
    input_error(std::strerror(errno), path);
  }
  if (!S_ISREG(info.st_mode)) input_error("is not a regular file", path);
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 < 0) fail("cannot be read", path);
  if (is_hdf5 == 0) input_error("is not an HDF5 file", path);
  inputs::note(descriptor_.fd);
  target_.descriptor = descriptor_.fd;
  target_.bytes = static_cast<std::uint64_t>(info.st_size);
  target_.whole = true;
  identity_ = identity_of(info);
  const PropertyList access(check(H5Pcreate(H5P_FILE_ACCESS), "cannot make a property list", path));
  use_target(access, target_);
  scout_once(path, access, identity_);
  file_ = File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()));
  if (!file_) {
    refuse_lack_of_memory();
    if (target_.failure != 0)
      input_error(std::string("cannot be read: ") + std::strerror(target_.failure), path);
    const std::string cause = last_cause();
    input_error("cannot be opened: " + cause, path,
                cause.find("open for write") == std::string::npos
                    ? "The file is damaged or was cut off."
                    : "It is still being written, or its writer was killed.");
  }
  Object root(check(H5Oopen(file_.id(), "/", H5P_DEFAULT), "root group cannot be opened", path));
  root_ = InputGroup(std::move(root), path, "/", target_.bytes);
}

void InputFile::require_unchanged() const {
  struct stat opened {
  }, named{};
  const bool same = ::fstat(descriptor_.fd, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                    identity_of(opened) == identity_ && identity_of(named) == identity_;
  if (!same)
    input_error("was rewritten, cut off, replaced or removed while it was read", path_,
                "Run it again once nothing writes the file.");
}

}  // namespace kvsim::hdf5
