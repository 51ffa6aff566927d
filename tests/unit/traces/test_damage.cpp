// Tests that whoever reads a trace notices damage that libhdf5 does not: blocks of zeros, values that are
// whole and wrong, files that change while they are read.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/traces/hdf5_edit.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/block_digest.hpp"
#include "traces/format/check.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/token_selection.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::test::test_damage {

using trace::Tensor;

namespace {

constexpr std::uint64_t kPrompt = 1100, kTokens = 1103;  // three blocks of 512 rows, the last one short

trace::Model model() {
  trace::Model out = small_model(2, 2, 2, 64, 64);
  out.hidden_size = 300;
  return out;
}

void normalise(std::span<float> row) {
  const float sum = std::accumulate(row.begin(), row.end(), 0.0F);
  for (float& value : row) value /= sum;
}

/// Every kind of tensor, most of them in several blocks.
void write_all_kinds(const std::string& path, const trace::WriteOptions& options = {}) {
  trace::Header header = trace::plain_header(model(), kPrompt, kTokens - kPrompt);
  header.elem = Elem::f32;
  header.output_elem = Elem::bf16;
  header.counted_tokens = kPrompt;
  header.attention_token = {1, kTokens - 1};
  const trace::MemoryTrace made = numbered_trace(header);
  trace::Writer writer(path, header, options);
  std::vector<float> columns(4 * kPrompt), probabilities(4 * (kTokens + 2));
  for (std::vector<float>* all : {&columns, &probabilities})
    for (std::size_t i = 0; i < all->size(); ++i)
      (*all)[i] = std::abs(static_cast<float>(normal(combine({7, i}))));
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (const Tensor tensor : kTensors) {
      std::vector<float> block;
      for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head) {
        const std::vector<float> rows = all_rows(made, tensor, layer, head);
        block.insert(block.end(), rows.begin(), rows.end());
      }
      writer.append(tensor, layer, kTokens, block);
    }
    writer.put_output_weights(layer, all_output_weights(made, layer));
    for (float& value : columns) value /= 2;  // other numbers in every dataset
    for (float& value : probabilities) value *= 1 + value;
    std::vector<float> squares = columns;
    for (float& value : squares) value *= value;
    writer.put_column_statistics(layer, kPrompt, columns, squares);
    for (std::uint64_t head = 0; head < 4; ++head) {
      normalise(std::span(probabilities).subspan(head * 2, 2));
      normalise(std::span(probabilities).subspan(8 + head * kTokens, kTokens));
    }
    writer.append_attention(layer, 0, 2, std::span(probabilities).first(8));
    writer.append_attention(layer, 0, kTokens, std::span(probabilities).subspan(8));
  }
  writer.finish(header);
}

const std::string& sound_bytes() {
  static const std::string bytes = [] {
    const Scratch scratch;
    write_all_kinds(scratch.file("sound.h5"));
    return bytes_of(scratch.file("sound.h5"));
  }();
  return bytes;
}

/// A sound trace that a test then damages.
struct Patient {
  Patient() { std::ofstream(path(), std::ios::binary) << sound_bytes(); }
  std::string path() const { return scratch.file("run.h5"); }
  Scratch scratch{};
};

/// Reads every number of a trace through the interface of replay, and the attention rows.
void read_everything(const std::string& path) {
  const trace::FileTrace file(path, {});
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (const Tensor tensor : kTensors)
      for (std::uint32_t head = 0; head < heads_of(model(), tensor); ++head)
        all_rows(file, tensor, layer, head);
    all_output_weights(file, layer);
    std::vector<float> sum(kPrompt), squares(kPrompt), rows(file.attention()[layer].ptr.back());
    for (std::uint32_t head = 0; head < 4; ++head) {
      file.read_column_statistics(layer, head, sum, squares);
      file.attention()[layer].p.read(head, 0, rows.size(), rows.data());
    }
  }
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

const std::vector<std::string> kKinds{"k", "v", "q", "wo", "rows/p", "column/sum", "column/sum_squares"};

const trace::StoredRows& stored(const trace::FileTrace& file, const std::string& kind) {
  for (const Tensor tensor : kTensors)
    if (kind == trace::schema::tensor_name(tensor)) return file.stored(tensor, 1);
  return kind == "wo"           ? file.output_weights()[1]
         : kind == "rows/p"     ? file.attention()[1].p
         : kind == "column/sum" ? file.columns()[1].sum
                                : file.columns()[1].sum_squares;
}

/// A chunk of a dataset of layer 1 as it lies in the file.
struct Chunk {
  std::uint64_t head, first_row, offset, bytes;
};

/// Chunks are found by their content, which differs: libhdf5 1.10 gives wrong addresses for datasets that
/// grow along their second axis.
std::vector<Chunk> chunks_of(const std::string& path, const std::string& kind) {
  const trace::FileTrace file(path, {});
  const trace::StoredRows& tensor = stored(file, kind);
  const std::vector<std::uint64_t>& dims = tensor.dataset().dims();
  const std::uint64_t row_bytes = tensor.dataset().bytes() / dims[0] / dims[1], step = tensor.block_rows(512);
  const std::string bytes = bytes_of(path);
  std::vector<Chunk> out;
  for (std::uint64_t head = 0; head < dims[0]; ++head) {
    for (std::uint64_t row = 0; row < dims[1]; row += step) {
      std::string block(std::min(step, dims[1] - row) * row_bytes, '\0');
      tensor.read(head, row, block.size() / row_bytes, block.data());
      const std::size_t offset = bytes.find(block);
      REQUIRE(offset != std::string::npos);
      REQUIRE(bytes.find(block, offset + 1) == std::string::npos);
      out.push_back({head, row, offset, std::min(step, dims[1]) * row_bytes + 4});  // and its checksum
    }
  }
  return out;
}

void overwrite(const std::string& path, std::uint64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file << bytes;
}

/// Makes the attribute sha256 of a list fit what the list holds now.
void seal_anew(hid_t file, const std::string& list, std::size_t bytes) {
  std::string stored(bytes, '\0');
  {
    const hdf5::Dataset dataset(need(H5Dopen2(file, list.c_str(), H5P_DEFAULT)));
    const hdf5::Datatype type(need(H5Dget_type(dataset.id())));
    need(H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.data()));
  }
  Sha256 digest;
  digest.update(stored.data(), stored.size());
  replace_text(file, list, "sha256", digest.hex());
}

}  // namespace

TEST_CASE("the digest of a block is XXH3-64, and that of zeros is not 0") {
  CHECK(trace::block_digest("", 0) == 0x2d06800538d394c2ULL);  // of xxHash's own tests
  CHECK(trace::block_digest("a", 1) == 0xe6c632b61e964e1fULL);
  CHECK(trace::block_digest("abc", 3) == 0x78af5f94892f3950ULL);
  const std::string zeros(131072, '\0');
  for (std::size_t bytes = 1; bytes <= zeros.size(); bytes *= 2)
    CHECK(trace::block_digest(zeros.data(), bytes) != 0);
}

TEST_CASE("the lists of digests are what SCHEMA.md says") {
  const Patient patient;
  const trace::FileTrace file(patient.path(), {});
  REQUIRE(file.has_block_digests());
  for (const Tensor tensor : kTensors) {
    CHECK(file.stored(tensor, 1).block_rows(0) == 512);
    std::vector<std::uint64_t> expected;
    for (std::uint32_t head = 0; head < heads_of(model(), tensor); ++head) {
      const std::vector<float> rows = all_rows(file, tensor, 1, head);
      for (std::size_t first = 0; first < kTokens; first += 512)
        expected.push_back(trace::block_digest(
            rows.data() + first * 64, std::min<std::size_t>(512, kTokens - first) * 64 * sizeof(float)));
    }
    std::vector<std::uint64_t> stored(expected.size());
    const hdf5::InputFile input(patient.path());
    input.root()
        .group("layers")
        .group("0001")
        .group("xxh3")
        .dataset(trace::schema::tensor_name(tensor), {hdf5::Type::u64}, 2)
        .read_all(stored.data());
    CHECK(stored == expected);
  }
}

TEST_CASE("a chunk of zeros is refused in every kind of tensor") {
  std::size_t zeroed = 0;
  for (const std::string& kind : kKinds) {
    const std::string dataset = "/layers/0001/" + kind;
    const Patient sound;
    for (const Chunk& chunk : chunks_of(sound.path(), kind)) {
      INFO(dataset << ", head " << chunk.head << ", row " << chunk.first_row);
      const Patient patient;
      overwrite(patient.path(), chunk.offset, std::string(chunk.bytes, '\0'));
      const std::string message = error_of([&] { read_everything(patient.path()); });
      CHECK_THAT(message, Catch::Contains(patient.path() + ":" + dataset) &&
                              Catch::Contains(" of head " + std::to_string(chunk.head) + " (rows " +
                                              std::to_string(chunk.first_row) + " to ") &&
                              Catch::Contains("does not match its digest"));
      Progress progress;
      const trace::CheckReport report = trace::check_trace(patient.path(), progress);
      CHECK(std::any_of(report.problems.begin(), report.problems.end(),
                        [&](const std::string& problem) { return problem == message; }));
      ++zeroed;
    }
  }
  CHECK(zeroed == 3 * (2 + 2 + 4) + 4 + 4 + 4 + 4);
}

TEST_CASE("without digests a chunk of zeros passes Fletcher32: what the digests are for") {
  const Scratch scratch;
  write_all_kinds(scratch.file("old.h5"), {.digests = false});
  const Chunk chunk = chunks_of(scratch.file("old.h5"), "k").front();
  overwrite(scratch.file("old.h5"), chunk.offset, std::string(chunk.bytes, '\0'));
  CHECK_NOTHROW(read_everything(scratch.file("old.h5")));
}

TEST_CASE("a block that is read in part is verified whole") {
  const Patient patient;
  const Chunk chunk = chunks_of(patient.path(), "q").front();
  overwrite(patient.path(), chunk.offset + 511 * 64 * sizeof(float), std::string(4, '\0'));
  const trace::FileTrace file(patient.path(), {});
  std::vector<float> row(64);
  CHECK_THROWS_WITH(file.read(Tensor::query, 1, static_cast<std::uint32_t>(chunk.head), 3, 1, row),
                    Catch::Contains("block 0 of head"));
  CHECK_NOTHROW(file.read(Tensor::query, 1, static_cast<std::uint32_t>(chunk.head), 512, 1, row));
}

TEST_CASE("reads of any rows give the same numbers with digests as without") {
  const Scratch scratch;
  write_all_kinds(scratch.file("old.h5"), {.digests = false});
  write_all_kinds(scratch.file("new.h5"));
  const trace::FileTrace old_file(scratch.file("old.h5"), {});
  for (const std::uint64_t first : {0, 1, 511, 512, 700, 1024, 1102}) {
    const trace::FileTrace file(scratch.file("new.h5"), {});  // nothing verified yet
    for (const std::uint64_t n : {1, 2, 400, 512, 1000}) {
      if (first + n > kTokens) continue;
      std::vector<float> a(n * 64), b(n * 64);
      file.read(Tensor::key, 1, 1, first, n, a);
      old_file.read(Tensor::key, 1, 1, first, n, b);
      CHECK(a == b);
    }
  }
}

TEST_CASE("a digest that is wrong is named") {
  const std::string list = "/layers/0001/xxh3/v";
  const auto change = [&](hid_t file) { poke<std::uint64_t>(file, list, 4, 12345); };
  const Patient patient;
  edit(patient.path(), change);
  CHECK_THAT(error_of([&] { read_everything(patient.path()); }),
             Catch::Contains(patient.path() + ":" + list) && Catch::Contains("does not match its sha256"));

  const Patient sealed;  // and the list's own digest fits: the digest of the content covers it
  edit(sealed.path(), change);
  edit(sealed.path(), [&](hid_t file) { seal_anew(file, list, std::size_t{2} * 3 * 8); });
  CHECK_THAT(error_of([&] { read_everything(sealed.path()); }),
             Catch::Contains("content_sha256 does not match"));

  const Patient without_content;
  edit(without_content.path(), change);
  edit(without_content.path(), [&](hid_t file) {
    seal_anew(file, list, std::size_t{2} * 3 * 8);
    replace_text(file, "/", "content_sha256", std::string(1, '\0'));  // empty
  });
  CHECK_THAT(error_of([&] { read_everything(without_content.path()); }),
             Catch::Contains(without_content.path() + ":/layers/0001/v") &&
                 Catch::Contains("block 1 of head 1 (rows 512 to 1023) is damaged"));
}

TEST_CASE("lists of digests that are missing or do not fit are refused") {
  const auto refused = [](const std::function<void(hid_t)>& change) {
    const Patient patient;
    edit(patient.path(), change);
    return error_of([&] { trace::FileTrace(patient.path(), {}); });
  };
  CHECK_THAT(refused([](hid_t file) { remove_link(file, "/layers/0001/xxh3"); }),
             Catch::Contains("/layers/0001/xxh3") && Catch::Contains("is missing"));
  for (const char* name : {"k", "q", "wo", "rows_p", "column_sum", "column_sum_squares"})
    CHECK_THAT(refused([&](hid_t file) { remove_link(file, std::string("/layers/0000/xxh3/") + name); }),
               Catch::Contains(std::string("/layers/0000/xxh3/") + name) && Catch::Contains("is missing"));
  const std::string keys = "/layers/0000/xxh3/k";
  for (const std::uint64_t rows : {0, 1, 256, 4096})
    CHECK_THAT(refused([&](hid_t file) { replace_attribute<std::uint64_t>(file, keys, "rows", rows); }),
               Catch::Contains("/layers/0000/k") && Catch::Contains("digests of"));
  CHECK_THAT(refused([&](hid_t file) { remove_attribute(file, keys, "rows"); }),
             Catch::Contains(keys) && Catch::Contains("attribute rows is missing"));
  const std::vector<std::uint64_t> none(9);
  CHECK_THAT(refused([&](hid_t file) {
               replace_dataset(file, keys, H5T_STD_U64LE, {3, 3}, none.data());
             }),
             Catch::Contains(keys));
}

TEST_CASE("a list that was changed is refused") {
  for (const char* list : {"/tokens/flags", "/tokens/id", "/tokens/position", "/segments/turn",
                           "/passes/start_ns", "/model/layer_window", "/layers/0000/rows/first_key"}) {
    INFO(list);
    const Patient patient;
    const hdf5::Session session;
    std::uint64_t offset = 0, bytes = 0;
    {
      const hdf5::File file(need(H5Fopen(patient.path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)));
      const hdf5::Dataset dataset(need(H5Dopen2(file.id(), list, H5P_DEFAULT)));
      offset = H5Dget_offset(dataset.id());
      bytes = H5Dget_storage_size(dataset.id());
    }
    const std::string sound = bytes_of(patient.path());
    overwrite(patient.path(), offset + bytes - 1,
              std::string(1, static_cast<char>(sound[offset + bytes - 1] ^ 1)));
    CHECK_THAT(error_of([&] { trace::FileTrace(patient.path(), {}); }),
               Catch::Contains(list) && Catch::Contains("does not match its sha256"));
  }
}

TEST_CASE("a marked copy is as verified as its original") {
  const Patient patient;
  const trace::FileTrace original(patient.path(), {});
  std::vector<std::uint32_t> flags = original.header().token_flags;
  flags[7] |= trace::kFlagEvidence;
  const std::string copy = patient.scratch.file("marked.h5");
  trace::write_marked_copy(patient.path(), copy, flags, original.header().flags_known | trace::kFlagEvidence,
                           false);
  CHECK(trace::FileTrace(copy, {}).header().token_flags == flags);
  CHECK(trace::FileTrace(copy, {}).content_sha256() == original.content_sha256());
  CHECK_NOTHROW(read_everything(copy));
  edit(copy, [](hid_t file) { poke<std::uint32_t>(file, "/tokens/flags", 7, 0); });
  CHECK_THAT(error_of([&] { trace::FileTrace(copy, {}); }), Catch::Contains("/tokens/flags"));
}

TEST_CASE("windows that contradict each other are refused") {
  const Patient patient;
  edit(patient.path(),
       [](hid_t file) { replace_attribute<std::int32_t>(file, "/layers/0001", "window", 64); });
  CHECK_THAT(error_of([&] { trace::FileTrace(patient.path(), {}); }),
             Catch::Contains("/layers/0001") &&
                 Catch::Contains("attribute window is 64, /model/layer_window[1] is -1"));
}

TEST_CASE("a trace of schema 1.3 is read with the checks that it has") {
  const std::string path = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/traces/schema_1_3.h5";
  const trace::FileTrace file(path, {});
  CHECK(!file.has_block_digests());
  CHECK(file.header().n_tokens() == 44);
  Progress progress;
  const trace::CheckReport report = trace::check_trace(path, progress);
  CHECK(report.problems == std::vector<std::string>{});
  CHECK(report.content_sha256 == file.content_sha256());
  const Scratch scratch;  // and its checksums still count
  std::ofstream(scratch.file("run.h5"), std::ios::binary) << bytes_of(path);
  const Chunk chunk = chunks_of(scratch.file("run.h5"), "v").front();
  overwrite(scratch.file("run.h5"), chunk.offset + 8, "xxxx");
  const trace::FileTrace damaged(scratch.file("run.h5"), {});
  std::vector<float> rows(44 * 8);
  CHECK_THROWS_WITH(damaged.read(Tensor::value, 1, static_cast<std::uint32_t>(chunk.head), 0, 44, rows),
                    Catch::Contains("Fletcher32"));
}

TEST_CASE("a trace of schema 1.4, written by kvsim 0.2.0, is read with all its checks") {
  const std::string path = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/traces/schema_1_4.h5";
  const trace::FileTrace file(path, {});
  CHECK(file.has_block_digests());
  CHECK(file.header().n_tokens() == 44);
  Progress progress;
  const trace::CheckReport report = trace::check_trace(path, progress);
  CHECK(report.problems == std::vector<std::string>{});
  CHECK(report.content_sha256 == "efd9da01ef0d0ba1b748cd77f7e499c48c31a55974ed4778dbc3e6f919c49f1c");
}

TEST_CASE("a file that changes while it is read is noticed") {
  const auto changed = [](const std::function<void(const Patient&)>& change) {
    const Patient patient;
    const trace::FileTrace file(patient.path(), {});
    CHECK_NOTHROW(file.require_unchanged());
    change(patient);
    return error_of([&] { file.require_unchanged(); });
  };
  const std::string what = "was rewritten, cut off, replaced or removed while it was read";
  CHECK_THAT(changed([](const Patient& patient) { overwrite(patient.path(), 100000, "x"); }),
             Catch::Contains(what));
  CHECK_THAT(changed([](const Patient& patient) { std::filesystem::resize_file(patient.path(), 100000); }),
             Catch::Contains(what));
  CHECK_THAT(changed([](const Patient& patient) { std::filesystem::remove(patient.path()); }),
             Catch::Contains(what));
  CHECK_THAT(changed([](const Patient& patient) {
               std::ofstream(patient.scratch.file("other.h5"), std::ios::binary) << sound_bytes();
               std::filesystem::rename(patient.scratch.file("other.h5"), patient.path());
             }),
             Catch::Contains(what));
}

TEST_CASE("a read beyond the end of a file that was cut off fails instead of giving zeros") {
  const Scratch scratch;
  write_all_kinds(scratch.file("old.h5"), {.digests = false});
  const trace::FileTrace file(scratch.file("old.h5"), {});
  std::filesystem::resize_file(scratch.file("old.h5"), 70000);
  CHECK(error_of([&] {
          for (std::uint32_t head = 0; head < 4; ++head) all_rows(file, Tensor::query, 1, head);
        }) != "");
}

}  // namespace kvsim::test::test_damage
