#include "traces/model/cpu/tile_product.hpp"

#include "sim/base/error.hpp"

#if defined(__AMX_BF16__) && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "traces/model/cpu/wide.hpp"

namespace kvsim::model::cpu {
namespace {

// A tile has 16 rows of 64 bytes. A tile of x holds 16 tokens by 32 inputs, a tile of W 16 pairs of inputs by
// 16 outputs, a tile of y 16 tokens by 16 outputs.
constexpr std::size_t kTileRows = 16;
constexpr std::size_t kTileBytes = 64;
constexpr std::size_t kTileInputs = 32;
constexpr std::size_t kTileWords = kTileRows * kTileInputs;
constexpr std::size_t kParts = 3;  // bf16 parts of a float
// Number of adjacent output tiles, each with its sums in a register.
constexpr std::size_t kColumns = 4;
constexpr std::size_t kTilePanel = kColumns * kTileRows;
// Number of steps of kTileInputs between two updates of y; a panel of that depth stays in the first level of
// cache.
constexpr std::size_t kSteps = 8;
constexpr std::size_t kTokensPerTileTask = 512;
constexpr std::size_t kMostPanelsPerTask = 4;

/// Aligned so that no row straddles two cache lines.
struct alignas(kTileBytes) Tile {
  std::uint16_t words[kTileWords];
};

/// x as tiles of its bf16 parts: [token tiles][steps][kParts], padded with zeros.
class SplitInput {
 public:
  SplitInput(Workers& workers, const float* x, std::size_t n, std::size_t in)
      : steps_(tasks_of(in, kTileInputs)), tiles_(buffer(tasks_of(n, kTileRows) * steps_ * kParts)) {
    workers.run(tasks_of(n, kTileRows), [&](std::size_t tile) {
      const std::size_t rows = std::min(kTileRows, n - tile * kTileRows);
      for (std::size_t step = 0; step < steps_; ++step) {
        const std::size_t first = step * kTileInputs;
        split(x + tile * kTileRows * in + first, rows, in, std::min(kTileInputs, in - first), at(tile, step));
      }
    });
  }

  std::size_t steps() const { return steps_; }
  Tile* at(std::size_t tile, std::size_t step) const { return tiles_ + (tile * steps_ + step) * kParts; }

 private:
  /// Memory that is kept from one product to the next, because fresh memory costs more than the splitting.
  static Tile* buffer(std::size_t size) {
    thread_local std::vector<Tile> kept;
    if (kept.size() < size) kept.resize(size);
    return kept.data();
  }

  /// Splits each float into parts of 8 significant bits.
  static void split(const float* x, std::size_t rows, std::size_t x_step, std::size_t count, Tile* parts) {
    for (std::size_t row = 0; row < rows; ++row, x += x_step) {
      alignas(kTileBytes) float ends[kTileInputs] = {};
      if (count < kTileInputs) std::copy_n(x, count, ends);
      const float* from = count < kTileInputs ? ends : x;
      for (std::size_t i = 0; i < kTileInputs; i += kWide) {
        Wide rest = load(from + i);
        for (std::size_t part = 0; part < kParts; ++part) {
          const WideInt bits = reinterpret_cast<WideInt>(rest);
          store_upper_halves(bits, parts[part].words + row * kTileInputs + i);
          rest -= reinterpret_cast<Wide>(bits & ~0xffff);
        }
      }
    }
  }

  static void store_upper_halves(WideInt bits, std::uint16_t* to) {
    using Halves [[gnu::vector_size(kWide * sizeof(std::uint16_t))]] = std::uint16_t;
    const Halves halves = __builtin_convertvector(bits >> 16, Halves);
    std::memcpy(to, &halves, sizeof halves);
  }

  std::size_t steps_;
  Tile* tiles_;
};

/// Transposes a tile of pairs of words.
void transpose_pairs(const Tile& from, Tile& to) {
  constexpr std::size_t kPairs = kTileInputs / 2;
  static_assert(kWide == kPairs && kWide == kTileRows);
  transpose(reinterpret_cast<const float*>(from.words), kPairs, reinterpret_cast<float*>(to.words),
            kTileRows);
}

/// Writes the weights of outputs [first, first + outputs) and of the inputs of steps [from, from + steps) as
/// [steps][kColumns] tiles of pairs of inputs, padded with zeros.
void fill_tile_panel(const Linear& linear, std::size_t first, std::size_t outputs, std::size_t from,
                     std::size_t steps, Tile* panel) {
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t input = (from + step) * kTileInputs, count = std::min(kTileInputs, linear.in - input);
    for (std::size_t column = 0; column < kColumns; ++column) {
      Tile rows;
      for (std::size_t i = 0; i < kTileRows; ++i) {
        const std::size_t output = column * kTileRows + i, copied = output < outputs ? count : 0;
        std::uint16_t* row = rows.words + i * kTileInputs;
        const std::byte* from_row = linear.data + ((first + output) * linear.in + input) * 2;
        if (copied == kTileInputs) {
          std::memcpy(row, from_row, kTileBytes);  // the size is known at compile time, so this is one
                                                   // register
          continue;
        }
        if (copied > 0) std::memcpy(row, from_row, copied * 2);
        std::fill(row + copied, row + kTileInputs, std::uint16_t{0});
      }
      transpose_pairs(rows, panel[step * kColumns + column]);
    }
  }
}

/// The shapes of the tile registers: sums 0-3, the three parts of x 4-6, weights 7.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

void set_shapes(std::size_t tokens) {
  TileShapes shapes;
  for (std::size_t tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = kTileBytes;
    shapes.rows[tile] = static_cast<std::uint8_t>(tile < 7 ? tokens : kTileRows);
  }
  _tile_loadconfig(&shapes);
}

/// sums [tokens, kTilePanel] += x panel over `steps` steps, beginning with the smallest part of x.
void multiply_tiles(const Tile* x, const Tile* panel, std::size_t steps, float* sums, std::size_t sum_step) {
  const std::size_t stride = sum_step * sizeof(float);
  _tile_loadd(0, sums, stride);
  _tile_loadd(1, sums + kTileRows, stride);
  _tile_loadd(2, sums + 2 * kTileRows, stride);
  _tile_loadd(3, sums + 3 * kTileRows, stride);
  for (std::size_t step = 0; step < steps; ++step) {
    _tile_loadd(4, x, kTileBytes);
    _tile_loadd(5, x + 1, kTileBytes);
    _tile_loadd(6, x + 2, kTileBytes);
    _tile_loadd(7, panel, kTileBytes);
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(0, 5, 7);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(7, panel + 1, kTileBytes);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(1, 5, 7);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(7, panel + 2, kTileBytes);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(2, 5, 7);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(7, panel + 3, kTileBytes);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_dpbf16ps(3, 4, 7);
    x += kParts;
    panel += kColumns;
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + kTileRows, stride);
  _tile_stored(2, sums + 2 * kTileRows, stride);
  _tile_stored(3, sums + 3 * kTileRows, stride);
}

/// Computes outputs [first, first + outputs) of tokens [token, token + n), kSteps steps of inputs at a time.
void apply_block(const Linear& linear, const SplitInput& input, std::size_t first, std::size_t outputs,
                 std::size_t token, std::size_t n, float* y) {
  const std::size_t width = tasks_of(outputs, kTilePanel) * kTilePanel;
  thread_local std::vector<Tile> panel(kSteps * kColumns);
  // A tile holds 256 floats of sums.
  thread_local std::vector<Tile> sum_tiles(kTokensPerTileTask * kMostPanelsPerTask * kTilePanel /
                                           (kTileWords / 2));
  float* sums = reinterpret_cast<float*>(sum_tiles.data());
  for (std::size_t i = 0; i < n; ++i) {
    std::fill_n(sums + i * width, width, 0.0F);
    if (!linear.bias.empty()) std::copy_n(linear.bias.data() + first, outputs, sums + i * width);
  }
  for (std::size_t step = 0; step < input.steps(); step += kSteps) {
    const std::size_t steps = std::min(kSteps, input.steps() - step);
    for (std::size_t output = 0; output < outputs; output += kTilePanel) {
      fill_tile_panel(linear, first + output, std::min(kTilePanel, outputs - output), step, steps,
                      panel.data());
      set_shapes(std::min(kTileRows, n));
      for (std::size_t i = 0; i < n; i += kTileRows) {
        if (i > 0 && n - i < kTileRows) set_shapes(n - i);
        multiply_tiles(input.at((token + i) / kTileRows, step), panel.data(), steps,
                       sums + i * width + output, width);
      }
    }
  }
  _tile_release();
  for (std::size_t i = 0; i < n; ++i)
    std::copy_n(sums + i * width, outputs, y + (token + i) * linear.out + first);
}

}  // namespace

bool tiles_available() {
  // Linux saves the 8 KiB of tile registers only for programs that request it (XFEATURE_XTILEDATA).
  static const bool granted = [] {
    if (const char* asked = std::getenv("KVSIM_TILES"); asked != nullptr && asked == std::string_view("0"))
      return false;
    constexpr long kRequest = 0x1023, kTileData = 18;
    return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }();
  return granted;
}

void apply_linear_on_tiles(Workers& workers, const Linear& linear, const float* x, std::uint64_t n,
                           float* y) {
  const SplitInput input(workers, x, n, linear.in);
  // Input in cache should serve several panels, but a narrow product still needs several tasks.
  const std::size_t panels = tasks_of(linear.out, kTilePanel);
  const std::size_t outputs_per_task =
      std::clamp<std::size_t>(panels / 8, 1, kMostPanelsPerTask) * kTilePanel;
  const std::size_t token_tasks = tasks_of(n, kTokensPerTileTask);
  workers.run(token_tasks * tasks_of(linear.out, outputs_per_task), [&](std::size_t task) {
    const std::size_t first = task / token_tasks * outputs_per_task;
    const std::size_t token = task % token_tasks * kTokensPerTileTask;
    apply_block(linear, input, first, std::min(outputs_per_task, linear.out - first), token,
                std::min(kTokensPerTileTask, n - token), y);
  });
}

}  // namespace kvsim::model::cpu

#else

namespace kvsim::model::cpu {

bool tiles_available() {
  return false;
}

void apply_linear_on_tiles(Workers&, const Linear&, const float*, std::uint64_t, float*) {
  bug("this program was not compiled for matrix tiles");
}

}  // namespace kvsim::model::cpu

#endif
