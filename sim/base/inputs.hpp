#pragma once
/// Which files a run reads, by device and inode, so that no output replaces one of them under any name.
#include <set>
#include <string>

namespace kvsim::inputs {

/// A run of the command begins: nothing has been read. Before the first one nothing is noted.
void begin_run();

/// A file that is read, open or by its name. A name of nothing is ignored.
void note(int descriptor);
void note(const std::string& path);

/// Something that a person should know of a file that was read; told once, when the run has ended.
void remark(const std::string& text);
std::set<std::string> remarks();

/// Whether the file at PATH, behind links, is read.
bool contain(const std::string& path);

}  // namespace kvsim::inputs
