#pragma once
/// Looks whether libhdf5 survives a file before this process opens it.
///
/// libhdf5's parser trusts what a file says of itself in places: crafted headers make version 1.10 read past
/// its buffers, divide by zero or recurse without end. So a forked copy of this process opens the file first
/// and touches everything that the readers touch later except the elements of datasets: groups, links, every
/// attribute, the headers of datasets and the indexes of their chunks. If the copy dies, the file is refused.
///
/// The alternative, a header reader of our own, would have to know what libhdf5 knows: four superblocks, two
/// kinds of object headers with continuations, symbol tables, local and fractal heaps, two kinds of B-trees
/// and three more chunk indexes, for whatever version wrote the file. Each rule that it got wrong would let
/// damage through or refuse a sound file, while the copy runs the very code that is going to read. A read
/// past a buffer seldom crashes anything by itself, so in the copy every buffer of libhdf5 ends where memory
/// begins that cannot be read (isolated_run.hpp); a libhdf5 that is linked statically gets no such
/// buffers. The copy is no defence against a file that takes the process over, which could make it say that
/// all is well: files of strangers belong into a sandbox.
#include <string>

#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// Throws Error(input) if a process dies of reading the structure of the file that `access` opens, exceeds 60
/// seconds of processor time or 1 GiB, or cannot follow the structure to its end.
void scout(const std::string& path, const PropertyList& access);

}  // namespace kvsim::hdf5
