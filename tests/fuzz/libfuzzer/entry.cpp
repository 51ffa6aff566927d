// What libFuzzer calls. The program runs the target whose name it is started by (a link of that name).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/fuzz/target.hpp"
#include "tests/support/hdf5_seals.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace kvsim::fuzz {
namespace {

const Target* g_target = nullptr;

/// Changes a safetensors file anywhere, or its header alone, whose length is then made to fit: nearly every
/// other change of the header would end at the check of that length.
std::size_t mutate_safetensors(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  std::uint64_t header = 0;
  if (size >= sizeof header) std::memcpy(&header, data, sizeof header);
  if (seed % 4 == 0 || size < sizeof header || header > size - sizeof header || most <= size)
    return LLVMFuzzerMutate(data, size, most);
  std::string text(reinterpret_cast<const char*>(data) + sizeof header, header);
  const std::string rest(reinterpret_cast<const char*>(data) + sizeof header + header,
                         size - sizeof header - header);
  text.resize(header + most - size);
  header = LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), header, text.size());
  text.resize(header);
  std::memcpy(data, &header, sizeof header);
  std::memcpy(data + sizeof header, (text + rest).data(), text.size() + rest.size());
  return sizeof header + text.size() + rest.size();
}

/// Changes an HDF5 file anywhere and then, most often, makes the checksums of its metadata fit: nearly every
/// other change would end at a checksum.
std::size_t mutate_hdf5(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 != 0) test::seal_hdf5({reinterpret_cast<char*>(data), size});
  return size;
}

bool reads_hdf5(const std::string& name) {
  return name == "trace" || name == "results_hdf5" || name == "external_scores" || name == "decisions" ||
         name == "calibration";
}

}  // namespace
}  // namespace kvsim::fuzz

using namespace kvsim::fuzz;

// libhdf5 asks for any size that a file states, takes a refusal well, and forgets memory when it refuses a
// file. kvsim's own allocations go through operator new, which does end the process when the size is absurd.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:quarantine_size_mb=8";
}
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5_serial";
}

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
  const std::string name = std::filesystem::path((*arguments)[0]).filename();
  for (const Target& target : targets())
    if (name == target.name) g_target = &target;
  if (g_target != nullptr) return 0;
  std::fprintf(stderr, "%s is no target. There are:", name.c_str());
  for (const Target& target : targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts(*g_target, {reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  const std::string name = g_target->name;
  if (name == "safetensors") return mutate_safetensors(data, size, most, seed);
  if (reads_hdf5(name)) return mutate_hdf5(data, size, most, seed);
  return LLVMFuzzerMutate(data, size, most);
}
