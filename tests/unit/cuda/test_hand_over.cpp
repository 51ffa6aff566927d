// Tests the ring of buffers between the device and the observer.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <stdexcept>
#include <vector>

#include "traces/model/cuda/hand_over.hpp"

using namespace kvsim::model::cuda;

namespace {

/// Hands over the numbers [0, count) in pieces of `size` ints, each copied through the device.
class Numbers {
 public:
  explicit Numbers(int count) : on_device_(static_cast<std::uint64_t>(count), "a test's numbers") {
    std::vector<std::int32_t> all;
    for (int i = 0; i < count; ++i) all.push_back(i);
    copy_to_device(on_device_.data(), all.data(), all.size() * sizeof all[0], stream_);
    stream_.synchronize();
  }
  void submit(HandOver& hand_over, int first, int size, HandOver::Show show) {
    std::byte* place = hand_over.begin(static_cast<std::uint64_t>(size) * sizeof(std::int32_t));
    copy_from_device(place, on_device_.data() + first,
                     static_cast<std::uint64_t>(size) * sizeof(std::int32_t), stream_);
    hand_over.submit(stream_, std::move(show));
  }

 private:
  Stream stream_;
  DeviceArray<std::int32_t> on_device_;
};

}  // namespace

TEST_CASE("pieces of any size are shown whole and in order") {
  open_device(0);
  Numbers numbers(1000);
  HandOver hand_over(3, 64, 0);
  std::vector<std::int32_t> seen;
  int first = 0;
  for (int size = 1; first + size <= 1000; first += size, size = 1 + (size * 7) % 50) {
    numbers.submit(hand_over, first, size, [&seen, size](const std::byte* data) {
      const std::size_t before = seen.size();
      seen.resize(before + static_cast<std::size_t>(size));
      std::memcpy(seen.data() + before, data, static_cast<std::size_t>(size) * sizeof(std::int32_t));
    });
  }
  hand_over.drain();
  REQUIRE(seen.size() == static_cast<std::size_t>(first));
  for (int i = 0; i < first; ++i) REQUIRE(seen[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("no more pieces are in memory than there are slots") {
  open_device(0);
  Numbers numbers(10);
  HandOver hand_over(2, 64, 0);
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> shown = 0;
  const auto wait = [&, gone](const std::byte*) {
    gone.wait();
    ++shown;
  };
  CHECK_FALSE(hand_over.full());
  numbers.submit(hand_over, 0, 1, wait);
  CHECK_FALSE(hand_over.full());
  numbers.submit(hand_over, 1, 1, wait);
  CHECK(hand_over.full());  // the first is being shown and still occupies its slot
  auto third = std::async(std::launch::async, [&] { numbers.submit(hand_over, 2, 1, wait); });
  CHECK(third.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  CHECK(shown == 0);
  go.set_value();
  third.get();
  hand_over.drain();
  CHECK(shown == 3);
}

TEST_CASE(
    "the next piece or the end rethrows the exception of a show, once, and later pieces are not shown") {
  open_device(0);
  Numbers numbers(10);
  HandOver hand_over(4, 64, 0);
  std::atomic<int> shown = 0;
  const auto show = [&](const std::byte*) { ++shown; };
  numbers.submit(hand_over, 0, 1, show);
  numbers.submit(hand_over, 1, 1, [](const std::byte*) { throw std::runtime_error("no room"); });
  bool at_a_piece = false;
  try {
    for (int i = 2; i < 9; ++i) numbers.submit(hand_over, i, 1, show);
  } catch (const std::runtime_error&) {
    at_a_piece = true;
  }
  if (!at_a_piece) CHECK_THROWS_WITH(hand_over.drain(), "no room");
  hand_over.abandon();
  CHECK(shown == 1);
  // The ring can be used again.
  numbers.submit(hand_over, 3, 1, show);
  hand_over.drain();
  CHECK(shown == 2);
}

TEST_CASE("abandoned pieces are not shown") {
  open_device(0);
  Numbers numbers(10);
  std::atomic<int> shown = 0;
  {
    HandOver hand_over(4, 64, 0);
    std::promise<void> looking, go;
    const std::shared_future<void> gone = go.get_future().share();
    numbers.submit(hand_over, 0, 1, [&, gone](const std::byte*) {
      looking.set_value();
      gone.wait();
    });
    looking.get_future().wait();
    for (int i = 1; i < 4; ++i) numbers.submit(hand_over, i, 1, [&](const std::byte*) { ++shown; });
    auto abandoned = std::async(std::launch::async, [&] { hand_over.abandon(); });
    CHECK(abandoned.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
    go.set_value();
    abandoned.get();
  }
  CHECK(shown == 0);
}
