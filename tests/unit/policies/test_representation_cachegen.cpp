// Tests the prompt in bins that grow with depth: cachegen.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "policies/builtin.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

namespace kvsim::policy::test::test_representation_cachegen {
namespace {

struct Bins {
  double keys = 0, values = 0;
};

/// The released code's table for the layers of a model with 32.
Bins table(int level, std::size_t layer) {
  if (level == 3) return {32, 32};
  if (level == 2) return {layer < 10 ? 32.0 : 16.0, layer < 2 ? 32.0 : 16.0};
  return {layer < 20 ? 16.0 : 12.0, layer < 2 ? 16.0 : 12.0};
}

/// An arithmetic coder with integers of 32 bits (Witten, Neal, Cleary 1987) for a table of counts.
class ArithmeticCoder {
 public:
  explicit ArithmeticCoder(const std::map<int, std::uint64_t>& counts) {
    for (const auto& [symbol, count] : counts) {
      below_[symbol] = {total_, total_ + count};
      total_ += count;
    }
  }

  std::vector<bool> encode(const std::vector<int>& symbols) {
    std::vector<bool> bits;
    std::uint64_t low = 0, high = kMost, waiting = 0;
    const auto put = [&](bool bit) {
      bits.push_back(bit);
      for (; waiting > 0; --waiting) bits.push_back(!bit);
    };
    for (const int symbol : symbols) {
      narrow(low, high, below_.at(symbol));
      while (true) {
        if (high <= kHalf)
          put(false);
        else if (low > kHalf) {
          put(true);
          low -= kHalf + 1;
          high -= kHalf + 1;
        } else if (low > kQuarter && high <= kHalf + kQuarter + 1) {
          ++waiting;
          low -= kQuarter + 1;
          high -= kQuarter + 1;
        } else
          break;
        low *= 2;
        high = high * 2 + 1;
      }
    }
    ++waiting;
    put(low > kQuarter);
    return bits;
  }

  std::vector<int> decode(const std::vector<bool>& bits, std::size_t n) {
    std::vector<int> out;
    std::size_t next = 0;
    const auto bit = [&] { return next < bits.size() && bits[next++] ? 1U : 0U; };
    std::uint64_t low = 0, high = kMost, code = 0;
    for (int i = 0; i < 32; ++i) code = code * 2 + bit();
    while (out.size() < n) {
      const std::uint64_t scaled = ((code - low + 1) * total_ - 1) / (high - low + 1);
      for (const auto& [symbol, range] : below_)
        if (scaled >= range.first && scaled < range.second) {
          out.push_back(symbol);
          narrow(low, high, range);
          break;
        }
      while (true) {
        std::uint64_t less = 0;
        if (high <= kHalf)
          less = 0;
        else if (low > kHalf)
          less = kHalf + 1;
        else if (low > kQuarter && high <= kHalf + kQuarter + 1)
          less = kQuarter + 1;
        else
          break;
        low = (low - less) * 2;
        high = (high - less) * 2 + 1;
        code = (code - less) * 2 + bit();
      }
    }
    return out;
  }

 private:
  static constexpr std::uint64_t kMost = 0xFFFFFFFF, kHalf = 0x7FFFFFFF, kQuarter = 0x3FFFFFFF;
  using Range = std::pair<std::uint64_t, std::uint64_t>;

  void narrow(std::uint64_t& low, std::uint64_t& high, const Range& range) const {
    const std::uint64_t width = high - low + 1;
    high = low + width * range.second / total_ - 1;
    low += width * range.first / total_;
  }

  std::map<int, Range> below_;
  std::uint64_t total_ = 0;
};

/// Bytes of a channel's codes, from the definition of information, one symbol at a time.
std::uint64_t slow_bytes(const std::vector<int>& symbols) {
  std::map<int, double> counts;
  for (const int symbol : symbols) counts[symbol] += 1;
  std::uint64_t bytes = 0;
  for (std::size_t first = 0; first < symbols.size(); first += 256) {
    double bits = 0;
    for (std::size_t i = first; i < std::min(first + 256, symbols.size()); ++i)
      bits -= std::log2(counts[symbols[i]] / static_cast<double>(symbols.size()));
    bytes += 4 + static_cast<std::uint64_t>(std::ceil(bits / 8 - 1e-9));
  }
  return bytes;
}

std::vector<int> spread_symbols(std::size_t n, double deviation) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<int> out;
  for (std::size_t i = 0; i < n; ++i)
    out.push_back(static_cast<int>(std::clamp(std::nearbyint(normal(random)), -127.0, 127.0)));
  return out;
}

std::uint64_t fast_bytes(const std::vector<int>& symbols, std::size_t run) {
  std::vector<std::int8_t> narrow;
  for (const int symbol : symbols) narrow.push_back(static_cast<std::int8_t>(symbol));
  return entropy_coded_bytes(narrow, run);
}

}  // namespace

TEST_CASE("entropy-coded bytes worked by hand") {
  CHECK(fast_bytes({}, 256) == 0);
  CHECK(fast_bytes({5, 5, 5, 5}, 256) == 0);     // certain
  CHECK(fast_bytes({0, 0, 1, -2}, 256) == 1);    // 1 + 1 + 2 + 2 bits
  CHECK(fast_bytes({0, 0, 1, -2}, 2) == 1 + 1);  // 2 bits, 4 bits
  // Half of 16 are 0: one bit each, whatever the run has of them.
  const std::vector<int> halves{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(fast_bytes(halves, 256) == 2);
  CHECK(fast_bytes(halves, 8) == 1 + 1);
  CHECK(fast_bytes(halves, 5) == 1 + 1 + 1 + 1);
}

TEST_CASE("entropy-coded bytes are what an arithmetic coder makes") {
  for (const double deviation : {0.4, 3.0, 40.0}) {
    const std::vector<int> symbols = spread_symbols(700, deviation);
    std::map<int, std::uint64_t> counts;
    for (const int symbol : symbols) ++counts[symbol];
    std::uint64_t coded = 0;
    for (std::size_t first = 0; first < symbols.size(); first += 256) {
      const std::vector<int> run(
          symbols.begin() + static_cast<std::ptrdiff_t>(first),
          symbols.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(first + 256, 700)));
      ArithmeticCoder coder(counts);
      const std::vector<bool> bits = coder.encode(run);
      CHECK(coder.decode(bits, run.size()) == run);
      coded += (bits.size() + 7) / 8;
    }
    CAPTURE(deviation);
    // Ending a run takes two bits at most, which may begin a byte in each of three.
    CHECK(fast_bytes(symbols, 256) <= coded);
    CHECK(coded <= fast_bytes(symbols, 256) + 3);
  }
}

TEST_CASE("cachegen's anchors worked by hand") {
  // Three tokens are a group. The first is 127 steps of 1 and -2 steps. The others' differences are 5 and 3,
  // and -10 and 0, in 5 steps on each side of 0: of 1, and of 2.
  RepresentedCache cache({.representation = "cachegen(level=1,anchors=3,tables=shared)",
                          .prompt = 3,
                          .dim = 2,
                          .length = 7,
                          .keys = {127, -2, 132, 1, 117, -2, 9, 9, 9, 9, 9, 9, 9, 9},
                          .values = {127, -2, 132, 1, 117, -2, 9, 9, 9, 9, 9, 9, 9, 9},
                          .layer = 3,
                          .n_layers = 4});
  CHECK(cache.key(0, 0) == 127);
  CHECK(cache.key(0, 1) == -2);
  CHECK(cache.key(1, 0) == 132);
  CHECK(cache.key(1, 1) == 1);
  CHECK(cache.key(2, 0) == 117);
  CHECK(cache.value(2, 1) == -2);
  // The anchor: 4 numbers in 8 bits; the others: twice 2 numbers of 12 bins in 8 bits; scales for all.
  const Ledger prompt{.codes = 4 * 8 + 2 * 2 * 8, .parameters = 3 * 2 * 16};
  CHECK(cache.ledger() == prompt);
  CHECK(cache.closed_form() == prompt);
  // Sent: of each of 4 channels one anchor, which is certain, and the codes 5 and -5, or 3 and 0, a bit each;
  // two runs with their lengths; and the scales.
  CHECK(cache.sent_bits() == 4 * (8 * (0 + 1) + 2 * 32) + 3 * 2 * 16);
  // The anchor's token is evicted, but the others need its code; with them it goes.
  cache.append({0});
  CHECK(cache.ledger() == Ledger{.exact = 4 * 16, .codes = prompt.codes, .parameters = prompt.parameters});
  cache.append({1});
  CHECK(cache.ledger() == Ledger{.exact = 8 * 16, .codes = 4 * 8 + 2 * 8, .parameters = 2 * 2 * 16});
  cache.append({2});
  CHECK(cache.ledger() == Ledger{.exact = 12 * 16});
}

TEST_CASE("cachegen's deviations worked by hand") {
  // In the first third a bin is half a deviation wide. The first channel's differences are 1 and 7, their
  // root mean square is 5, and they are 0.4 and 2.8 bins of 2.5. The second channel has none.
  const RepresentedCache cache({.representation = "cachegen(anchors=10,bins=deviation)",
                                .prompt = 3,
                                .dim = 2,
                                .length = 3,
                                .keys = {127, 0, 128, 0, 134, 0},
                                .values = {127, 0, 128, 0, 134, 0},
                                .n_layers = 3});
  CHECK(cache.key(0, 0) == 127);
  CHECK(cache.key(1, 0) == 127);
  CHECK(cache.key(2, 0) == 134.5F);
  CHECK(cache.value(2, 1) == 0);
  CHECK(cache.ledger() == Ledger{.codes = 3 * 4 * 8, .parameters = 2 * 16, .tables = 4 * 16});
  CHECK(cache.closed_form() == cache.ledger());
  // 0 and 3 are one bit each; the second channel's codes are certain. Tables of 257 entries for the anchors
  // and for the others of each channel.
  CHECK(cache.sent_bits() == 2 * 8 + 4 * 2 * (32 + 257 * 16) + 2 * 16 + 4 * 16);
}

TEST_CASE("cachegen's anchors and sizes, from their definition") {
  for (const std::string bins : {"table", "deviation"})
    for (const std::size_t anchors : {0U, 1U, 4U, 1000U})
      for (const std::size_t every : {1U, 3U}) {
        CAPTURE(bins, anchors, every);
        constexpr std::size_t kPrompt = 300, kDim = 4, kLanes = 2;
        RepresentedCache cache({.representation = "cachegen(anchors=" + std::to_string(anchors) +
                                                  ",bins=" + bins + ",tables=shared)",
                                .prompt = kPrompt,
                                .n_lanes = kLanes,
                                .dim = kDim,
                                .length = kPrompt + 1,
                                .every = every,
                                .layer = 1,
                                .n_layers = 3});
        std::uint64_t sent = 0, tokens = (kPrompt + every - 1) / every;
        for (const bool values : {false, true}) {
          std::vector<std::vector<double>> rows, read;
          for (std::size_t p = 0; p < kPrompt; p += every) {
            auto& row = rows.emplace_back();
            auto& stored = read.emplace_back();
            for (std::size_t c = 0; c < kLanes * kDim; ++c) {
              row.push_back(static_cast<double>(values ? cache.recorded_value(p, c % kDim, c / kDim)
                                                       : cache.recorded_key(p, c % kDim, c / kDim)));
              stored.push_back(static_cast<double>(values ? cache.value(p, c % kDim, c / kDim)
                                                          : cache.key(p, c % kDim, c / kDim)));
            }
          }
          const auto first_of = [&](std::size_t i) { return anchors > 0 && i % anchors == 0; };
          const auto largest = [](const std::vector<double>& row) {
            double most = 0;
            for (const double x : row) most = std::max(most, std::abs(x));
            return as_half(most);
          };
          // Differences to what the anchors read back as.
          for (std::size_t i = 0; i < rows.size(); ++i)
            if (anchors > 0 && !first_of(i))
              for (std::size_t c = 0; c < rows[i].size(); ++c) rows[i][c] -= read[i - i % anchors][c];
          // A layer of the middle third: bins of a whole deviation, or 16 of keys and of values.
          for (std::size_t c = 0; c < kLanes * kDim; ++c) {
            double squares = 0, n = 0;
            for (std::size_t i = 0; i < rows.size(); ++i)
              if (!first_of(i)) {
                squares += rows[i][c] * rows[i][c];
                n += 1;
              }
            std::vector<int> of_anchors, of_others;
            for (std::size_t i = 0; i < rows.size(); ++i) {
              const double steps = first_of(i) || bins == "deviation" ? 127 : 7;
              const double scale =
                  first_of(i) || bins == "table" ? largest(rows[i]) / steps : as_half(std::sqrt(squares / n));
              const double code = std::clamp(std::nearbyint(rows[i][c] / scale), -steps, steps);
              (first_of(i) ? of_anchors : of_others).push_back(static_cast<int>(code));
              const double anchor = anchors > 0 && !first_of(i) ? read[i - i % anchors][c] : 0;
              REQUIRE(read[i][c] == Approx(code * scale + anchor).margin(1e-5));
            }
            sent += 8 * (slow_bytes(of_anchors) + slow_bytes(of_others));
          }
        }
        const std::uint64_t of_anchors = anchors == 0 ? 0 : (tokens + anchors - 1) / anchors,
                            others = tokens - of_anchors, channels = 2 * kLanes * kDim;
        Ledger expected;
        expected.codes = of_anchors * channels * 8 + others * channels * (bins == "table" ? 4 : 8);
        expected.parameters = 32 * (of_anchors + (bins == "table" ? others : 0));
        expected.tables = bins == "deviation" && others > 0 ? channels * 16 : 0;
        CHECK(cache.ledger() == expected);
        CHECK(cache.closed_form() == expected);
        CHECK(cache.sent_bits() == sent + expected.parameters + expected.tables);
      }
}

TEST_CASE("cachegen: differences of tokens that resemble their neighbours take fewer bytes") {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> walk;
  for (std::size_t i = 0; i < 600; ++i) walk.push_back((i < 4 ? 8 : walk[i - 4]) + 0.3F * normal(random));
  const auto sent = [&](const std::string& anchors) {
    return *RepresentedCache(
                {.representation = "cachegen(bins=deviation,tables=shared,anchors=" + anchors + ")",
                 .prompt = 150,
                 .length = 150,
                 .keys = walk,
                 .values = walk})
                .sent_bits();
  };
  CHECK(sent("10") < sent("1"));  // each token an anchor, in 8 bits
}

TEST_CASE("cachegen worked by hand") {
  // Level 1 in a deep layer: 12 bins are 5 steps on each side of 0. With 10 as the largest number of both
  // heads a step is 2: 5 is in the middle of 2 and 3 steps and goes to the even 2, 7 to the even 4.
  const float infinity = std::numeric_limits<float>::infinity();
  RepresentedCache cache({.representation = "cachegen(level=1)",
                          .prompt = 2,
                          .n_lanes = 2,
                          .dim = 2,
                          .length = 3,
                          .keys = {10, 5, -7, 0.9F, 0, 0, 0, 0, 1, 2, 3, 4},
                          .values = {std::nanf(""), 1, -infinity, infinity, 5, -5, 4, 0, 1, 2, 3, 4},
                          .layer = 3,
                          .n_layers = 4});
  CHECK(cache.key(0, 0, 0) == 10);
  CHECK(cache.key(0, 1, 0) == 4);
  CHECK(cache.key(0, 0, 1) == -8);
  CHECK(cache.key(0, 1, 1) == 0);
  for (const std::size_t lane : {0U, 1U})
    for (const std::size_t c : {0U, 1U}) CHECK(cache.key(1, c, lane) == 0);
  CHECK(cache.value(0, 0, 0) == 0);
  CHECK(cache.value(0, 1, 0) == 0);
  CHECK(cache.value(0, 0, 1) == -65504);  // as the largest 16-bit scale has it
  CHECK(cache.value(0, 1, 1) == 65504);
  CHECK(cache.value(1, 1, 0) == -5);
  CHECK(cache.value(1, 0, 1) == 4);
  // Four numbers of 12 bins are one of 12^4 = 20,736, which takes 15 bits, and a scale takes 16; of keys and
  // of values.
  CHECK(cache.ledger() == Ledger{.codes = 2 * 2 * 15, .parameters = 2 * 2 * 16});
  // What is generated stays as it comes, also in the slot of a token of the prompt.
  cache.append({0});
  CHECK(cache.key(2, 1, 1) == 4);
  CHECK(cache.ledger() == Ledger{.exact = 8 * 16, .codes = 2 * 15, .parameters = 2 * 16});
}

TEST_CASE("cachegen's bins by level and depth, from their definition") {
  for (const int level : {1, 2, 3})
    for (const std::size_t n_layers : {32U, 4U, 80U})
      for (std::size_t layer = 0; layer < n_layers; ++layer) {
        if (n_layers == 80 && layer % 5 != 0) continue;
        CAPTURE(level, n_layers, layer);
        const Bins bins = table(level, layer * 32 / n_layers);
        RepresentedCache cache({.representation = "cachegen(level=" + std::to_string(level) + ")",
                                .prompt = 6,
                                .n_lanes = 2,
                                .dim = 6,
                                .length = 8,
                                .every = 2,
                                .layer = static_cast<std::uint32_t>(layer),
                                .n_layers = static_cast<std::uint32_t>(n_layers)});
        cache.append();
        for (const std::size_t p : {0U, 2U, 4U}) {
          double key = 0, value = 0;
          for (std::size_t lane = 0; lane < 2; ++lane)
            for (std::size_t c = 0; c < 6; ++c) {
              key = std::max(key, std::abs(static_cast<double>(cache.recorded_key(p, c, lane))));
              value = std::max(value, std::abs(static_cast<double>(cache.recorded_value(p, c, lane))));
            }
          const auto read = [](double x, double largest, double n) {
            const double steps = n / 2 - 1, scale = as_half(largest) / steps;
            return std::clamp(std::nearbyint(x / scale), -steps, steps) * scale;
          };
          for (std::size_t lane = 0; lane < 2; ++lane)
            for (std::size_t c = 0; c < 6; ++c) {
              CHECK(static_cast<double>(cache.key(p, c, lane)) ==
                    Approx(read(cache.recorded_key(p, c, lane), key, bins.keys)).margin(1e-6));
              CHECK(static_cast<double>(cache.value(p, c, lane)) ==
                    Approx(read(cache.recorded_value(p, c, lane), value, bins.values)).margin(1e-6));
            }
        }
        CHECK(cache.ledger() == cache.closed_form());
        const auto bits = [](double n) { return static_cast<std::uint64_t>(std::ceil(12 * std::log2(n))); };
        CHECK(cache.ledger().codes == 3 * (bits(bins.keys) + bits(bins.values)));
        CHECK(cache.exact_keys() == 1);
      }
}

TEST_CASE("cachegen: more bins, smaller errors") {
  double before = 0;
  for (const char* level : {"3", "2", "1"}) {
    const RepresentedCache cache({.representation = "cachegen(level=" + std::string(level) + ")",
                                  .prompt = 50,
                                  .dim = 64,
                                  .length = 50,
                                  .layer = 30,
                                  .n_layers = 32});
    double error = 0;
    for (std::size_t p = 0; p < 50; ++p)
      for (std::size_t c = 0; c < 64; ++c)
        error +=
            std::pow(static_cast<double>(cache.key(p, c)) - static_cast<double>(cache.recorded_key(p, c)), 2);
    CHECK(error > before);
    before = error;
  }
}

}  // namespace kvsim::policy::test::test_representation_cachegen
