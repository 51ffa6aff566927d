// Reads every input of the corpora: seeds, and what fuzzing found, which stays mended.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "sim/base/files.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/hdf5_seals.hpp"

namespace kvsim::test_corpus {
namespace {

const std::filesystem::path kCorpora = KVSIM_SOURCE_DIR "/tests/fuzz/corpus";

std::vector<std::filesystem::path> inputs_of(const std::string& target) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpora / target))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("every input of a corpus is accepted or refused as it should be, and some are either") {
  for (const fuzz::Target& target : fuzz::targets()) {
    int accepted = 0, refused = 0;
    for (const std::filesystem::path& file : inputs_of(target.name)) {
      INFO(file);
      // A copy of exact size lets a sanitizer detect a read of the first byte behind it.
      const std::string text = read_file(file, 1 << 20);
      const std::vector<char> exact(text.begin(), text.end());
      bool accepts = false;
      REQUIRE_NOTHROW(accepts = fuzz::accepts(target, {exact.data(), exact.size()}));
      ++(accepts ? accepted : refused);
    }
    INFO(target.name);
    CHECK(accepted > 0);
    CHECK(refused > 0);
  }
}

TEST_CASE("every corpus and every dictionary belongs to a target") {
  std::set<std::string> names;
  for (const fuzz::Target& target : fuzz::targets()) CHECK(names.insert(target.name).second);
  for (const auto& entry : std::filesystem::directory_iterator(kCorpora))
    CHECK(names.contains(entry.path().filename()));
  for (const auto& entry : std::filesystem::directory_iterator(kCorpora.parent_path() / "dictionaries"))
    CHECK(names.contains(entry.path().stem()));
}

TEST_CASE("the checksum with which fuzzing seals metadata is HDF5's") {
  const std::string file = read_file(kCorpora / "trace" / "written.h5", 1 << 20);
  REQUIRE(test::sealed_pieces(file).size() > 20);
  std::string sealed = file;
  test::seal_hdf5(sealed);
  CHECK(sealed == file);
}

}  // namespace kvsim::test_corpus
