#pragma once
/// How libhdf5 reaches our files, instead of by its own driver, for two reasons. Its own reports a failed
/// write, after which libhdf5 1.10 cannot close the file and crashes when the process ends; ours never fails,
/// drops what follows the first failed write and remembers the cause, and whoever writes the file asks. And
/// its own lets metadata reads go through an accumulator that a crafted address overruns; ours has none.
#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// One file, open.
struct DriverTarget {
  int descriptor = -1;      ///< owned by the caller
  bool ours = false;        ///< a new, empty file, whose metadata nobody crafted
  std::uint64_t bytes = 0;  ///< size when it is opened
  int failure = 0;          ///< errno of the first failed write
};

/// Makes the file opened with `access` use `target`, which must outlive it.
void use_target(const PropertyList& access, DriverTarget& target);

}  // namespace kvsim::hdf5
