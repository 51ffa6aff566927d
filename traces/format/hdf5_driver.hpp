#pragma once
/// The driver through which libhdf5 reads and writes trace files. It replaces the default driver for three
/// reasons. First, when the default driver reports a failed write, libhdf5 1.10 cannot close the file and
/// crashes at the end of the process; this driver never reports a failure, drops everything after the first
/// failed write and records its cause for the writer to query. Second, the default driver passes metadata
/// reads through an accumulator that a crafted address overruns; this driver has no accumulator. Third, the
/// default driver gives zeros for bytes beyond the end of a file, so that one cut off meanwhile reads as
/// zeros.
#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// One open file.
struct DriverTarget {
  int descriptor = -1;      ///< owned by the caller
  bool ours = false;        ///< a new, empty file, whose metadata can be trusted
  bool whole = false;       ///< only read: nothing lies beyond its end, so that reading there is an error
  std::uint64_t bytes = 0;  ///< size at opening
  int failure = 0;          ///< errno of the first failed write or the latest failed read, 0 if none failed
};

/// While one is there, reads of raw data by this thread have the system fetch the bytes from the disk, and
/// leave the memory that they should go to as it is. For H5Dread_chunk() alone, which keeps nothing of what
/// it reads: that chunk's place in the file is what libhdf5 1.10 does not tell without looking at all others.
class [[nodiscard]] FetchOnly {
 public:
  FetchOnly();
  ~FetchOnly();
  FetchOnly(const FetchOnly&) = delete;
  FetchOnly& operator=(const FetchOnly&) = delete;
};

/// Makes the file opened with `access` use `target`, which must outlive it.
void use_target(const PropertyList& access, DriverTarget& target);

}  // namespace kvsim::hdf5
