// What verifying the digests of blocks costs: the same trace with them and without, as schema 1.3 had it,
// read head by head from the page cache as replay reads it, one thread. Then replays of a trace that the page
// cache does not hold, with lanes announced and without, and of a deflated trace.
//
//   bench_reader [PAIRS] [FOLDER]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"
#include "tests/bench/replay_cells.hpp"
#include "traces/format/block_digest.hpp"
#include "traces/format/memory_trace.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/writer.hpp"

using namespace kvsim;

namespace {

constexpr trace::Tensor kTensors[] = {trace::Tensor::key, trace::Tensor::value, trace::Tensor::query};

/// One layer of Llama-3-8B's shape, 8,192 tokens.
trace::MemoryTrace made(Elem elem) {
  trace::Model model;
  model.n_layers = 1;
  model.n_q_heads = 32;
  model.n_kv_heads = 8;
  model.head_dim = 128;
  trace::Header header = trace::plain_header(model, 8100, 92);
  header.elem = elem;
  trace::MemoryTrace out(std::move(header));
  for (const trace::Tensor tensor : kTensors) {
    for (std::uint32_t head = 0; head < trace::schema::tensor_heads(out.header().model, tensor); ++head) {
      std::uint64_t key = combine({static_cast<std::uint64_t>(tensor), head});
      for (float& value : out.rows(tensor, 0, head))
        value = static_cast<float>(uniform01(key = mix(key)) - 0.5);
    }
  }
  return out;
}

/// Opens the trace and reads all of it; `rows` at a time, 0: a whole head.
void read_all(const std::string& path, std::uint64_t rows, std::vector<float>& out) {
  const auto source = trace::open_trace(path);
  const trace::Header& header = source->header();
  for (const trace::Tensor tensor : kTensors) {
    const std::uint64_t n = rows == 0 ? header.n_tokens() : rows;
    out.resize(n * 128);
    for (std::uint32_t head = 0; head < trace::schema::tensor_heads(header.model, tensor); ++head)
      for (std::uint64_t first = 0; first + n <= header.n_tokens(); first += n)
        source->read(tensor, 0, head, first, n, out);
  }
}

/// A trace whose lanes are not announced.
class Unannounced final : public trace::Source {
 public:
  explicit Unannounced(const trace::Source& source) : source_(&source) {}
  const trace::Header& header() const override { return source_->header(); }
  std::string name() const override { return source_->name(); }
  std::string content_sha256() const override { return source_->content_sha256(); }
  void read(trace::Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
            std::uint64_t n, std::span<float> out) const override {
    source_->read(tensor, layer, head, first, n, out);
  }
  void read_output_weights(std::uint32_t layer, std::uint32_t head, std::span<float> out) const override {
    source_->read_output_weights(layer, head, out);
  }
  void read_column_statistics(std::uint32_t layer, std::uint32_t head, std::span<float> sum,
                              std::span<float> squares) const override {
    source_->read_column_statistics(layer, head, sum, squares);
  }

 private:
  const trace::Source* source_;
};

/// Has the page cache forget a file that is on the disk.
void forget(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

/// Replays of a trace of eight layers' shape in one, from the disk.
void replays(const std::filesystem::path& folder, int pairs) {
  const std::string plain = folder / "plain.h5", deflated = folder / "deflated.h5";
  const trace::MemoryTrace trace = bench::make(32, 4096);
  trace::write_trace(plain, trace, {.overwrite = true});
  trace::write_trace(deflated, trace, {.overwrite = true, .deflate = 1});
  const auto replayed = [](const trace::Source& source, const char* policy) {
    Progress progress;
    sim::replay(trace::Sequence(source), bench::study({policy}, "25%", 1), progress);
  };
  for (const char* policy : {"window", "h2o"}) {
    const auto cold = [&](const std::string& path, bool announced) {
      return [&, announced] {
        forget(path);
        const auto source = trace::open_trace(path);
        if (announced)
          replayed(*source, policy);
        else
          replayed(Unannounced(*source), policy);
      };
    };
    const auto warm = [&](const std::string& path) {
      return [&] { replayed(*trace::open_trace(path), policy); };
    };
    const std::string name = policy;
    bench::report((name + " from the disk: lanes announced / not").c_str(),
                  bench::paired(cold(plain, true), cold(plain, false), pairs));
    bench::report((name + ": from the disk, lanes announced / from memory").c_str(),
                  bench::paired(cold(plain, true), warm(plain), pairs));
    bench::report((name + ": deflated trace / as it is").c_str(),
                  bench::paired(warm(deflated), warm(plain), pairs));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::filesystem::path folder =
      (argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path()) /
      ("kvsim-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::vector<float> out;
  for (const Elem elem : {Elem::bf16, Elem::f32}) {
    const std::string name = elem_name(elem), with = folder / "with.h5", without = folder / "without.h5";
    const trace::MemoryTrace trace = made(elem);
    trace::write_trace(with, trace, {.overwrite = true});
    trace::write_trace(without, trace, {.overwrite = true, .digests = false});
    const double bytes = static_cast<double>(std::filesystem::file_size(with));
    const auto line = [&](const std::string& what, std::uint64_t rows) {
      const bench::Paired found =
          bench::paired([&] { read_all(with, rows, out); }, [&] { read_all(without, rows, out); }, pairs);
      bench::report((name + ", " + what + ": digests / Fletcher32").c_str(), found);
      std::printf("%-64s %6.2f GB/s against %.2f GB/s\n", "", bytes / found.candidate_s * 1e-9,
                  bytes / found.baseline_s * 1e-9);
    };
    line("whole heads", 0);
    line("100 rows at a time", 100);
    const auto writing = [&](bool digests) {
      return [&, digests] {
        trace::write_trace(folder / "new.h5", trace, {.overwrite = true, .digests = digests});
      };
    };
    bench::report((name + ", writing: digests / none").c_str(),
                  bench::paired(writing(true), writing(false), 5));
  }
  replays(folder, std::min(pairs, 5));
  std::vector<std::uint16_t> halves(std::size_t{1} << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(halves.size());
  const auto widened = [&] { widen(Elem::f16, halves.data(), halves.size(), wide.data()); };
  const auto one_by_one = [&] {
    std::transform(halves.begin(), halves.end(), wide.begin(), [](std::uint16_t x) { return widen_f16(x); });
  };
  const auto often = [](const auto& work) {
    return [&work] {
      for (int i = 0; i < 100; ++i) work();
    };
  };
  bench::report("f16 widened by F16C / by arithmetic",
                bench::paired(often(widened), often(one_by_one), pairs));
  const std::vector<char> block(131072, 'x');
  std::uint64_t sum = 0;
  const double seconds = bench::seconds([&] {
    for (int i = 0; i < 20000; ++i) sum += trace::block_digest(block.data(), block.size());
  });
  std::printf("XXH3-64 of blocks of 128 KiB: %.1f GB/s (%llx)\n", 20000.0 * 131072 / seconds * 1e-9,
              static_cast<unsigned long long>(sum));
  std::filesystem::remove_all(folder);
  return 0;
}
