#include "traces/format/hdf5_driver.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "sim/base/error.hpp"

namespace kvsim::hdf5 {
namespace {

struct OpenFile {
  H5FD_t base{};  // first member: libhdf5 sees only this
  DriverTarget* target = nullptr;
  haddr_t allocated = 0, end = 0;  // libhdf5's end of allocation and end of file
};

OpenFile& self(H5FD_t* file) {
  return *reinterpret_cast<OpenFile*>(file);
}
const OpenFile& self(const H5FD_t* file) {
  return *reinterpret_cast<const OpenFile*>(file);
}

H5FD_t* open_file(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*max_address*/) {
  // The property holds a pointer to the target: property lists copy what they hold.
  auto* const* target = static_cast<DriverTarget* const*>(H5Pget_driver_info(access));
  if (target == nullptr) return nullptr;
  auto file = std::make_unique<OpenFile>();
  file->target = *target;
  file->end = (*target)->bytes;
  return &file.release()->base;
}

herr_t close_file(H5FD_t* file) {
  delete &self(file);
  return 0;
}

/// `file` is null when libhdf5 asks about the driver in general.
herr_t query(const H5FD_t* file, unsigned long* flags) {
  *flags = H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  if (file == nullptr || self(file).target->ours)
    *flags |= H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t /*kind*/) {
  return self(file).allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t /*kind*/, haddr_t address) {
  self(file).allocated = address;
  return 0;
}
haddr_t get_end(const H5FD_t* file, H5FD_mem_t /*kind*/) {
  return self(file).end;
}

thread_local bool fetch_only = false;

herr_t read_block(H5FD_t* file, H5FD_mem_t kind, hid_t /*transfer*/, haddr_t address, std::size_t size,
                  void* out) {
  if (fetch_only && kind == H5FD_MEM_DRAW) {
    ::posix_fadvise(self(file).target->descriptor, static_cast<off_t>(address), static_cast<off_t>(size),
                    POSIX_FADV_WILLNEED);
    return 0;
  }
  auto* bytes = static_cast<unsigned char*>(out);
  for (std::size_t done = 0; done < size;) {
    const ssize_t got =
        ::pread(self(file).target->descriptor, bytes + done, size - done, static_cast<off_t>(address + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      self(file).target->failure = errno;
      return -1;
    }
    if (got == 0 && self(file).target->whole) return -1;
    if (got == 0) {  // what libhdf5 has allocated and not yet written are zeros to it
      std::memset(bytes + done, 0, size - done);
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  return 0;
}

herr_t write_block(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*transfer*/, haddr_t address, std::size_t size,
                   const void* data) {
  OpenFile& open = self(file);
  open.end = std::max(open.end, address + size);
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t done = 0; done < size && open.target->failure == 0;) {
    const ssize_t put =
        ::pwrite(open.target->descriptor, bytes + done, size - done, static_cast<off_t>(address + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      open.target->failure = errno;
    else
      done += static_cast<std::size_t>(put);
  }
  return 0;
}

herr_t truncate_file(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  OpenFile& open = self(file);
  if (open.end == open.allocated) return 0;
  if (open.target->failure == 0 &&
      ::ftruncate(open.target->descriptor, static_cast<off_t>(open.allocated)) != 0)
    open.target->failure = errno;
  open.end = open.allocated;
  return 0;
}

hid_t driver() {
  static const H5FD_class_t methods = [] {
    H5FD_class_t out{};
#ifdef H5FD_CLASS_VERSION
    out.version = H5FD_CLASS_VERSION;
    out.value = static_cast<H5FD_class_value_t>(512);
#endif
    out.name = "kvsim";
    out.maxaddr = (haddr_t{1} << 63) - 1;
    out.fc_degree = H5F_CLOSE_STRONG;
    out.fapl_size = sizeof(DriverTarget*);
    out.open = open_file;
    out.close = close_file;
    out.query = query;
    out.get_eoa = get_allocated;
    out.set_eoa = set_allocated;
    out.get_eof = get_end;
    out.read = read_block;
    out.write = write_block;
    out.truncate = truncate_file;
    std::fill(std::begin(out.fl_map), std::end(out.fl_map), H5FD_MEM_DEFAULT);
    return out;
  }();
  static const hid_t id = H5FDregister(&methods);
  return id;
}

}  // namespace

FetchOnly::FetchOnly() {
  fetch_only = true;
}
FetchOnly::~FetchOnly() {
  fetch_only = false;
}

void use_target(const PropertyList& access, DriverTarget& target) {
  const Session session;
  DriverTarget* const pointer = &target;
  if (H5Pset_driver(access.id(), driver(), &pointer) < 0)
    bug("libhdf5 refuses the output driver: " + last_cause());
}

}  // namespace kvsim::hdf5
