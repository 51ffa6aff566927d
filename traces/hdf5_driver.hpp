#pragma once
/// How libhdf5 reaches a file we write. Its own driver reports a failed write, after which libhdf5 1.10
/// cannot close the file and crashes when the process ends. This one never fails: from the first failed write
/// on it drops what it is given and remembers the cause, and whoever writes the file asks.
#include "traces/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// State of one file being written.
struct DriverTarget {
  int descriptor = -1;  ///< open for reading and writing, owned by the caller
  int failure = 0;      ///< errno of the first failed write
};

/// Makes files opened with `access` use `target`, which must outlive them and whose file must be empty.
void use_target(const PropertyList& access, DriverTarget& target);

}  // namespace kvsim::hdf5
