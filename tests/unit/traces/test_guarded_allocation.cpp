// Tests that a library's accesses past its blocks end the process, on blocks that libhdf5 allocates for its
// caller.
#include <hdf5.h>

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/base/isolated_run.hpp"

namespace kvsim::test_guarded_allocation {
namespace {

const AllocationCalls& calls() {
  static const AllocationCalls kCalls(reinterpret_cast<const void*>(H5open));
  return kCalls;
}

volatile char* block_of(std::size_t bytes, bool cleared = false) {
  return static_cast<volatile char*>(H5allocate_memory(bytes, cleared));
}

void expect(bool holds) {
  if (!holds) throw std::logic_error("other contents");
}

void* plain(volatile char* block) {
  return const_cast<char*>(block);
}

/// What becomes of a process that does this with guarded blocks.
template <class Work>
std::string end_of(Work work) {
  H5open();
  calls();
  return run_isolated(
             [&]() -> std::string {
               calls().guard();
               work();
               return "lives";
             },
             "here")
      .text;
}

const std::string kDied = "died of signal 11 (Segmentation fault)";

}  // namespace

TEST_CASE("a guarded block can be used to its last byte, and not beyond") {
  REQUIRE(calls().found());
  for (const std::size_t bytes : {1, 7, 100, 4095, 4096, 4097, 100'000}) {
    CHECK(end_of([&] {
            volatile char* const block = block_of(bytes);
            for (std::size_t i = 0; i < bytes; ++i) block[i] = 1;
          }) == "lives");
    CHECK(end_of([&] { static_cast<void>(block_of(bytes)[bytes]); }) == kDied);
    CHECK(end_of([&] { block_of(bytes)[bytes + 65'000] = 1; }) == kDied);
  }
}

TEST_CASE("guarded blocks are cleared, resized and freed") {
  CHECK(end_of([&] {
          for (int round = 0; round < 3; ++round) {  // the third gets what the first freed
            volatile char* const block = block_of(100, true);
            for (std::size_t i = 0; i < 100; ++i) expect(block[i] == 0);
            for (std::size_t i = 0; i < 100; ++i) block[i] = static_cast<char>(i);
            auto* const larger = static_cast<volatile char*>(H5resize_memory(plain(block), 5000));
            for (std::size_t i = 0; i < 100; ++i) expect(larger[i] == static_cast<char>(i));
            larger[4999] = 1;
            auto* const smaller = static_cast<volatile char*>(H5resize_memory(plain(larger), 50));
            for (std::size_t i = 0; i < 50; ++i) expect(smaller[i] == static_cast<char>(i));
            H5free_memory(plain(smaller));
          }
        }) == "lives");
  CHECK(end_of([] {
          auto* const block = static_cast<volatile char*>(H5resize_memory(plain(block_of(100)), 50));
          block[50] = 1;
        }) == kDied);
}

TEST_CASE("blocks from before the guard stay valid, and there is memory after the guarded blocks") {
  volatile char* const before = block_of(100);
  before[99] = 5;
  CHECK(end_of([&] {
          auto* const larger = static_cast<volatile char*>(H5resize_memory(plain(before), 200));
          expect(larger[99] == 5);
          H5free_memory(plain(larger));
        }) == "lives");
  H5free_memory(plain(before));
  CHECK(end_of([] {
          std::vector<volatile char*> blocks;
          for (int i = 0; i < 20'000; ++i) {
            blocks.push_back(block_of(24));
            blocks.back()[23] = 1;
          }
          for (volatile char* const block : blocks) H5free_memory(plain(block));
          block_of(std::size_t{600} << 20)[0] = 1;  // more than is set aside for guarded ones
        }) == "lives");
}

}  // namespace kvsim::test_guarded_allocation
