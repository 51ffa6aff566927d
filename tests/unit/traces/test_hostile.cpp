// Tests hostile files: each construct is refused by name before it costs memory or time.
#include <sys/stat.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/base/error.hpp"
#include "tests/unit/traces/hdf5_edit.hpp"
#include "tests/unit/traces/largest_allocation.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/check.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/writer.hpp"

namespace kvsim::test::test_hostile {

namespace {

constexpr std::size_t kTokens = 5;

/// Bytes of a valid file with everything that a trace may hold: 2 layers, 4 query and 2 KV heads of 8, hidden
/// size 6, 4 + 1 tokens.
std::string sound_bytes(Elem elem) {
  trace::Header header = trace::plain_header(small_model(), 4, 1);
  header.model.hidden_size = 6;
  header.elem = elem;
  header.output_elem = elem;
  header.token_logprob.assign(kTokens, -1);
  header.layer_ns.assign(4, 1);
  header.attn_ns.assign(4, 1);
  header.text_offset = {0, 1, 2, 3, 4, 5};
  header.text_bytes = "abcde";
  header.query_token = {2, 3, 4};
  header.counted_tokens = 4;
  header.attention_token = {1, 4};
  const trace::MemoryTrace made = numbered_trace(header);
  const Scratch scratch;
  // Without digests, which would notice every damage before the rules that are tested here.
  trace::Writer writer(scratch.file("sound.h5"), header, {.digests = false});
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (const trace::Tensor tensor : kTensors) {
      std::vector<float> block;
      for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head) {
        const std::vector<float> rows = all_rows(made, tensor, layer, head);
        block.insert(block.end(), rows.begin(), rows.end());
      }
      writer.append(tensor, layer, tensor == trace::Tensor::query ? 3 : kTokens, block);
    }
    writer.put_output_weights(layer, all_output_weights(made, layer));
    const UniformColumns columns(4, 4);
    writer.put_column_statistics(layer, 4, columns.sum, columns.sum_squares);
    writer.append_attention(layer, 0, 2, std::vector<float>(8, 0.5F));
    writer.append_attention(layer, 0, 5, std::vector<float>(20, 0.2F));
  }
  writer.finish(header);
  return bytes_of(scratch.file("sound.h5"));
}

/// A valid file that a test then damages.
class Victim {
 public:
  explicit Victim(Elem elem = Elem::f32) {
    static const std::string full = sound_bytes(Elem::f32), half = sound_bytes(Elem::bf16);
    std::ofstream(path(), std::ios::binary) << (elem == Elem::f32 ? full : half);
  }

  std::string path() const { return scratch_.file("victim.h5"); }
  const Scratch& scratch() const { return scratch_; }

 private:
  Scratch scratch_;
};

/// Requires that opening fails with an input error that contains both texts, without a large allocation.
void require_refused(const std::string& path, const std::string& where, const std::string& what) {
  INFO(where << ": " << what);
  largest_allocation() = 0;
  try {
    trace::open_trace(path);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), Catch::Contains(where) && Catch::Contains(what) && Catch::Contains("victim.h5"));
  }
  CHECK(largest_allocation() < (1 << 20));
}

void refuses(const std::function<void(hid_t)>& change, const std::string& where, const std::string& what) {
  const Victim victim;
  edit(victim.path(), change);
  require_refused(victim.path(), where, what);
}

const std::string kKeys = "/layers/0000/k";
const std::vector<hsize_t> kKeyShape{2, kTokens, 8};
const std::vector<float> kKeyData(2 * kTokens * 8, 1.0F);

/// Replaces k of layer 0 by floats with this creation list.
std::function<void(hid_t)> keys_with(const std::function<void(hid_t)>& set, bool written = true) {
  return [set, written](hid_t file) {
    const hdf5::PropertyList list = creation_list(set);
    replace_dataset(file, kKeys, H5T_IEEE_F32LE, kKeyShape, written ? kKeyData.data() : nullptr, list.id());
  };
}

}  // namespace

TEST_CASE("the file is valid before it is damaged") {
  const Victim victim;
  Progress progress;
  const trace::CheckReport report = trace::check_trace(victim.path(), progress);
  CHECK(report.problems == std::vector<std::string>{});
  CHECK(report.attention_rows == 2 * 4 * 2);
}

TEST_CASE("data in other files") {
  const Victim other;
  const std::string secret = other.scratch().file("secret");
  std::ofstream(secret) << std::string(4096, 's');

  refuses(keys_with([&](hid_t list) { need(H5Pset_external(list, secret.c_str(), 0, 320)); }, false), kKeys,
          "keeps its data in external files");
  refuses(
      [&](hid_t file) {
        remove_link(file, kKeys);
        link_external(other.path(), kKeys, file, kKeys);
      },
      kKeys, "is an external link");
  refuses(
      [&](hid_t file) {
        const hdf5::Dataspace space(need(H5Screate_simple(3, kKeyShape.data(), nullptr)));
        const hdf5::PropertyList list = creation_list([&](hid_t id) {
          need(H5Pset_virtual(id, space.id(), other.path().c_str(), kKeys.c_str(), space.id()));
        });
        replace_dataset(file, kKeys, H5T_IEEE_F32LE, kKeyShape, nullptr, list.id());
      },
      kKeys, "is a virtual dataset");
}

TEST_CASE("links that are not hard, at any component of a path") {
  const auto move_and_link = [](const std::string& path) {
    return [path](hid_t file) {
      need(H5Lmove(file, path.c_str(), file, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT));
      need(H5Lcreate_soft("/elsewhere", file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT));
    };
  };
  for (const std::string path :
       {"/layers/0001/v", "/layers/0001", "/layers", "/tokens/id", "/model", "/text"})
    refuses(move_and_link(path), path, "is a soft link");
  refuses(
      [](hid_t file) {
        remove_link(file, kKeys);
        need(H5Lcreate_soft("/nowhere", file, kKeys.c_str(), H5P_DEFAULT, H5P_DEFAULT));
      },
      kKeys, "is a soft link");
  const Victim other;
  refuses(
      [&](hid_t file) {  // soft to external
        remove_link(file, kKeys);
        link_external(other.path(), kKeys, file, "/bridge");
        need(H5Lcreate_soft("/bridge", file, kKeys.c_str(), H5P_DEFAULT, H5P_DEFAULT));
      },
      kKeys, "is a soft link");
  refuses(
      [&](hid_t file) {
        remove_link(file, "/layers/0001");
        link_external(other.path(), "/layers/0001", file, "/layers/0001");
      },
      "/layers/0001", "is an external link");
}

TEST_CASE("external links are dead in the whole process") {
  const Victim victim, other;
  edit(victim.path(), [&](hid_t file) { link_external(other.path(), "/", file, "/out"); });
  CHECK_NOTHROW(trace::open_trace(victim.path()));  // kvsim does not read /out
  const hdf5::Session session;
  const hdf5::File file(need(H5Fopen(victim.path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)));
  CHECK(H5Oopen(file.id(), "/out/tokens", H5P_DEFAULT) < 0);
}

TEST_CASE("shapes that promise more than is stored") {
  refuses(
      [](hid_t file) {
        replace_dataset(file, kKeys, H5T_IEEE_F32LE, {50000, 50000, 8}, nullptr);
      },
      kKeys, "needs far more than the 0 bytes stored");
  refuses(
      [](hid_t file) {
        const hdf5::PropertyList list = creation_list([](hid_t id) {
          const hsize_t chunk[] = {1, 64, 8};
          need(H5Pset_chunk(id, 3, chunk));
        });
        replace_dataset(file, kKeys, H5T_IEEE_F32LE, {1U << 31, 1U << 31, 1U << 31}, nullptr, list.id());
      },
      kKeys, "needs far more than");
  refuses([](hid_t file) { replace_dataset(file, "/tokens/id", H5T_STD_I32LE, {1ULL << 40}, nullptr); },
          "/tokens/id", "needs far more than");
  refuses(
      [](hid_t file) {
        replace_attribute<std::uint64_t>(file, "/", "n_tokens", 1 << 24);
        replace_dataset(file, "/tokens/id", H5T_STD_I32LE, {1 << 24}, nullptr);
      },
      "/tokens/id", "needs far more than the 0 bytes stored");
  refuses(keys_with([](hid_t) {}, false), kKeys, "needs far more than the 0 bytes stored");  // never written
}

TEST_CASE("chunks that are missing, too large, or swollen by deflate") {
  const auto chunked = [](std::vector<hsize_t> chunk, bool deflate) {
    return [chunk, deflate](hid_t list) {
      need(H5Pset_chunk(list, 3, chunk.data()));
      if (deflate) need(H5Pset_deflate(list, 9));
    };
  };
  const auto of_rows = [](hsize_t rows, const std::function<void(hid_t)>& set) {
    return [rows, set](hid_t file) {
      replace_dataset(file, kKeys, H5T_IEEE_F32LE, {2, rows, 8}, nullptr, creation_list(set).id());
    };
  };
  refuses(of_rows(1 << 19, chunked({2, 1 << 19, 8}, false)), kKeys, "chunks are larger than 16 MiB");
  refuses(of_rows(1 << 16, chunked({2, 1 << 16, 8}, true)), kKeys, "chunks are larger than 1 MiB");
  const auto first_chunk_only = [](const std::function<void(hid_t)>& set) {
    return [set](hid_t file) {
      const hdf5::PropertyList list = creation_list(set);
      replace_dataset(file, kKeys, H5T_IEEE_F32LE, kKeyShape, nullptr, list.id());
      const hdf5::Dataset dataset(need(H5Dopen2(file, kKeys.c_str(), H5P_DEFAULT)));
      const hdf5::Dataspace space(need(H5Dget_space(dataset.id())));
      const hsize_t start[] = {0, 0, 0}, count[] = {1, kTokens, 8};
      need(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start, nullptr, count, nullptr));
      const hdf5::Dataspace memory(need(H5Screate_simple(3, count, nullptr)));
      need(H5Dwrite(dataset.id(), H5T_IEEE_F32LE, memory.id(), space.id(), H5P_DEFAULT, kKeyData.data()));
    };
  };
  refuses(first_chunk_only(chunked({1, kTokens, 8}, true)), kKeys, "has 1 of its 2 chunks");
  refuses(first_chunk_only(chunked({1, kTokens, 8}, false)), kKeys,
          "needs far more than the 160 bytes stored");
  refuses(
      [](hid_t file) {  // stores one deflated chunk of zeros, claims 2^20
        const hdf5::PropertyList list = creation_list([](hid_t id) {
          const hsize_t chunk[] = {1 << 18};
          need(H5Pset_chunk(id, 1, chunk));
          need(H5Pset_deflate(id, 9));
        });
        replace_dataset(file, "/text/bytes", H5T_STD_U8LE, {1ULL << 38}, nullptr, list.id());
        const hdf5::Dataset dataset(need(H5Dopen2(file, "/text/bytes", H5P_DEFAULT)));
        const hdf5::Dataspace space(need(H5Dget_space(dataset.id())));
        const hsize_t start[] = {0}, count[] = {1 << 18};
        need(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start, nullptr, count, nullptr));
        const hdf5::Dataspace memory(need(H5Screate_simple(1, count, nullptr)));
        const std::vector<char> zeros(1 << 18);
        need(H5Dwrite(dataset.id(), H5T_STD_U8LE, memory.id(), space.id(), H5P_DEFAULT, zeros.data()));
      },
      "/text/bytes", "needs far more than");
}

TEST_CASE("a stored chunk far larger than its data is refused when it is read") {
  const Victim victim;
  edit(victim.path(), [](hid_t file) {
    const hdf5::PropertyList list = creation_list([](hid_t id) {
      const hsize_t chunk[] = {2, kTokens, 8};
      need(H5Pset_chunk(id, 3, chunk));
      need(H5Pset_deflate(id, 1));
    });
    replace_dataset(file, kKeys, H5T_IEEE_F32LE, kKeyShape, nullptr, list.id());
    const hdf5::Dataset dataset(need(H5Dopen2(file, kKeys.c_str(), H5P_DEFAULT)));
    const hsize_t start[] = {0, 0, 0};
    const std::vector<char> stored(1 << 20, 'x');
    need(H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, start, stored.size(), stored.data()));
  });
  const auto open = trace::open_trace(victim.path());
  std::vector<float> rows(kTokens * 8);
  CHECK_THROWS_WITH(open->read(trace::Tensor::key, 0, 0, 0, kTokens, rows),
                    Catch::Contains(kKeys) && Catch::Contains("holds a chunk larger than its data"));
}

TEST_CASE("a chunk that becomes less than a chunk is refused before libhdf5 reads past its end") {
  struct Stored {
    bool deflate, checksum;
    std::size_t bytes;
    std::uint32_t left_out;
  };
  const std::size_t whole = 2 * kTokens * 8 * sizeof(float);
  const Stored made = GENERATE_REF(Stored{false, true, 8, 1}, Stored{false, true, whole, 0},
                                   Stored{true, false, 8, 1}, Stored{true, false, whole - 4, 0},
                                   Stored{true, true, whole + 3, 1}, Stored{false, true, 2, 0});
  const Victim victim;
  edit(victim.path(), [&](hid_t file) {
    const hdf5::PropertyList list = creation_list([&](hid_t id) {
      const hsize_t chunk[] = {2, kTokens, 8};
      need(H5Pset_chunk(id, 3, chunk));
      if (made.deflate) need(H5Pset_deflate(id, 1));
      if (made.checksum) need(H5Pset_fletcher32(id));
    });
    replace_dataset(file, kKeys, H5T_IEEE_F32LE, kKeyShape, nullptr, list.id());
    const hdf5::Dataset dataset(need(H5Dopen2(file, kKeys.c_str(), H5P_DEFAULT)));
    const hsize_t start[] = {0, 0, 0};
    std::vector<char> stored(made.bytes, 'x');
    if (made.deflate && made.left_out == 0) {  // sound deflate of 4 bytes less than a chunk
      const std::vector<Bytef> data(made.bytes, 1);
      auto packed = compressBound(static_cast<uLong>(made.bytes));
      stored.resize(packed);
      REQUIRE(compress(reinterpret_cast<Bytef*>(stored.data()), &packed, data.data(), data.size()) == Z_OK);
      stored.resize(packed);
    }
    need(H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, made.left_out, start, stored.size(), stored.data()));
  });
  std::vector<float> rows(kTokens * 8);
  const auto read = [&] {
    trace::open_trace(victim.path())->read(trace::Tensor::key, 0, 0, 0, kTokens, rows);
  };
  INFO("deflate " << made.deflate << ", checksum " << made.checksum << ", " << made.bytes
                  << " bytes, left out " << made.left_out);
  CHECK_THROWS_WITH(read(),
                    Catch::Contains(kKeys) && (Catch::Contains("does not hold the 320 bytes of a chunk") ||
                                               Catch::Contains("does not match its Fletcher32 checksum") ||
                                               Catch::Contains("needs far more than")));
}

TEST_CASE("deflate and shuffle are read") {
  const Victim victim;
  edit(victim.path(), keys_with([](hid_t list) {
         const hsize_t chunk[] = {1, 2, 4};
         need(H5Pset_chunk(list, 3, chunk));
         need(H5Pset_shuffle(list));
         need(H5Pset_deflate(list, 6));
         need(H5Pset_fletcher32(list));
       }));
  const auto open = trace::open_trace(victim.path());
  std::vector<float> rows(3 * 8);
  open->read(trace::Tensor::key, 0, 1, 1, 3, rows);
  CHECK(rows == std::vector<float>(3 * 8, 1.0F));
}

TEST_CASE("filters and layouts that kvsim does not accept") {
  const auto with_filter = [](const std::function<void(hid_t)>& filter) {
    return [filter](hid_t file) {
      const hdf5::PropertyList list = creation_list([&](hid_t id) {
        const hsize_t chunk[] = {kTokens};
        need(H5Pset_chunk(id, 1, chunk));
        filter(id);
      });
      const std::vector<std::int32_t> ids(kTokens);
      replace_dataset(file, "/tokens/id", H5T_STD_I32LE, {kTokens}, ids.data(), list.id());
    };
  };
  refuses(with_filter([](hid_t list) { need(H5Pset_scaleoffset(list, H5Z_SO_INT, 0)); }), "/tokens/id",
          "uses filter 6");
  refuses(with_filter([](hid_t list) { need(H5Pset_nbit(list)); }), "/tokens/id", "uses filter 5");
  refuses(with_filter([](hid_t list) { need(H5Pset_deflate(list, 1)), need(H5Pset_deflate(list, 1)); }),
          "/tokens/id", "is deflated twice");
  refuses(keys_with([](hid_t list) { need(H5Pset_layout(list, H5D_COMPACT)); }), kKeys,
          "is neither contiguous nor chunked");
}

TEST_CASE("types that are not exactly those of the schema") {
  const auto keys_of = [](hid_t type) {
    return [type](hid_t file) { replace_dataset(file, kKeys, type, kKeyShape, nullptr); };
  };
  const char* what = "element type is not f32 or bf16 or f16 or u16";
  refuses(keys_of(H5T_IEEE_F64LE), kKeys, what);
  refuses(keys_of(H5T_IEEE_F32BE), kKeys, what);
  refuses(keys_of(H5T_STD_I16LE), kKeys, what);
  refuses(keys_of(H5T_STD_REF_OBJ), kKeys, what);
  refuses(keys_of(hdf5::Datatype(H5Tvlen_create(H5T_IEEE_F32LE)).id()), kKeys, what);
  refuses(keys_of(hdf5::Datatype(H5Tcreate(H5T_OPAQUE, 4)).id()), kKeys, what);
  const hdf5::Datatype compound(need(H5Tcreate(H5T_COMPOUND, 4)));
  need(H5Tinsert(compound.id(), "x", 0, H5T_IEEE_F32LE));
  refuses(keys_of(compound.id()), kKeys, what);
  hdf5::Datatype odd_bias = hdf5::datatype(hdf5::Type::bf16);
  need(H5Tset_ebias(odd_bias.id(), 120));
  refuses(keys_of(odd_bias.id()), kKeys, what);
  const hsize_t three[] = {3};
  refuses(keys_of(hdf5::Datatype(H5Tarray_create2(H5T_IEEE_F32LE, 1, three)).id()), kKeys, what);
}

TEST_CASE("16-bit elements whose attribute elem is missing or wrong") {
  const std::vector<std::uint16_t> words(kKeyData.size(), 0x3f80);
  refuses([&](hid_t file) { replace_dataset(file, kKeys, H5T_STD_U16LE, kKeyShape, words.data()); }, kKeys,
          "no attribute elem says what they are");
  refuses(
      [&](hid_t file) {
        replace_dataset(file, kKeys, H5T_STD_U16LE, kKeyShape, words.data());
        replace_text(file, kKeys, "elem", "f16");
      },
      kKeys, "attribute elem contradicts the type");
  refuses([&](hid_t file) { replace_text(file, kKeys, "elem", "bf16"); }, kKeys,
          "attribute elem contradicts the type");
  refuses(
      [&](hid_t file) {
        replace_dataset(file, "/layers/0001/v", H5T_STD_U16LE, kKeyShape, words.data());
        replace_text(file, "/layers/0001/v", "elem", "bf16");
      },
      "/layers/0001/v", "is bf16, the first layer's k is f32");
}

TEST_CASE("shapes that contradict the header") {
  refuses(
      [](hid_t file) {
        replace_dataset(file, kKeys, H5T_IEEE_F32LE, {2, kTokens * 8}, kKeyData.data());
      },
      kKeys, "does not have 3 dimensions");
  refuses(
      [](hid_t file) {
        replace_dataset(file, kKeys, H5T_IEEE_F32LE, {2, 8, kTokens}, kKeyData.data());
      },
      kKeys, "has shape [2, 8, 5], but /model makes it [2, 5, 8]");
  refuses([](hid_t file) { replace_attribute<std::uint64_t>(file, "/", "n_tokens", 6); }, "/tokens/id",
          "has shape [5], but n_tokens makes it [6]");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/", "n_segments", 1); },
          "/segments/parent", "has shape [2]");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/", "n_passes", 3); }, "/passes/segment",
          "has shape [2]");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "n_layers", 3); },
          "/model/layer_window", "has shape [2]");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "head_dim", 16); },
          "/layers/0000", "differ from /model");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/layers/0001", "layer", 0); },
          "/layers/0001", "differ from /model");
}

TEST_CASE("a missing required object is reported by name") {
  const Victim intact;
  const auto optional = [](const std::string& path) {
    for (const char* prefix :
         {"/text", "/timing", "/tokens/logprob", "/layers/0000/rows", "/layers/0001/rows", "/layers/0000/wo",
          "/layers/0001/wo", "/layers/0000/column", "/layers/0001/column"})
      if (path == prefix) return true;
    return path == "/timing/layer_ns" || path == "/timing/attn_ns";
  };
  std::size_t removed = 0;
  for (const Listed& object : objects_of(intact.path())) {
    const Victim victim;
    edit(victim.path(), [&](hid_t file) { remove_link(file, object.path); });
    if (optional(object.path)) {
      // In only one of two layers they are no longer consistent.
      if (object.path.find("/layers") == std::string::npos) CHECK_NOTHROW(trace::open_trace(victim.path()));
      continue;
    }
    const bool query_tokens = object.path == "/layers/0000/q_token";  // then q has too few rows for all
                                                                      // tokens
    require_refused(victim.path(), query_tokens ? "/layers/0000/q" : object.path,
                    query_tokens ? "has shape [4, 3, 8]" : "is missing");
    ++removed;
  }
  CHECK(removed > 40);
}

TEST_CASE("groups in the place of datasets, datasets in the place of groups") {
  const Victim intact;
  for (const Listed& object : objects_of(intact.path())) {
    if (object.path.find("/0001/") != std::string::npos) continue;  // as layer 0
    const Victim victim;
    edit(victim.path(), [&](hid_t file) {
      if (object.is_group) {
        const float value = 0;
        replace_dataset(file, object.path, H5T_IEEE_F32LE, {1}, &value);
      } else {
        remove_link(file, object.path);
        const hdf5::Object group(
            need(H5Gcreate2(file, object.path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
      }
    });
    require_refused(victim.path(), object.path,
                    object.is_group ? "is a dataset, not a group" : "is a group, not a dataset");
  }
}

TEST_CASE("every list refuses another type and another length") {
  const Victim intact;
  for (const Listed& object : objects_of(intact.path())) {
    const bool free_length = object.path == "/sequences/leaf" || object.path == "/model/config_json";
    if (object.is_group || object.path.find("/0001/") != std::string::npos) continue;
    const Victim victim;
    edit(victim.path(), [&](hid_t file) { replace_dataset(file, object.path, H5T_STD_I8LE, {1}, "x"); });
    require_refused(victim.path(), object.path, "element type is not");
    if (free_length) continue;
    const Victim longer;
    edit(longer.path(), [&](hid_t file) {
      const hdf5::Dataset old(need(H5Dopen2(file, object.path.c_str(), H5P_DEFAULT)));
      const hdf5::Datatype type(need(H5Dget_type(old.id())));
      const hdf5::Dataspace space(need(H5Dget_space(old.id())));
      std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.id())));
      need(H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr));
      dims.back() += 100;
      std::size_t bytes = H5Tget_size(type.id());
      for (const hsize_t dim : dims) bytes *= dim;
      const std::vector<char> data(bytes);
      replace_dataset(file, object.path, type.id(), dims, data.data());
    });
    // The offsets say how long the text is.
    require_refused(longer.path(), object.path == "/text/bytes" ? "/text/offset" : object.path, "");
  }
}

TEST_CASE("a missing attribute is reported by name") {
  const Victim intact;
  std::size_t removed = 0;
  for (const std::string object : {"/", "/model", "/tokenizer", "/capture", "/tokens", "/layers/0000"}) {
    for (const std::string& name : attributes_of(intact.path(), object)) {
      // These are derived, or repeated from /model.
      if (name == "features" || name == "schema_minor" || name == "window") continue;
      const Victim victim;
      edit(victim.path(), [&](hid_t file) { remove_attribute(file, object, name); });
      require_refused(victim.path(), name == "format" ? "victim.h5" : object,
                      name == "format" ? "not a kvsim trace" : "attribute " + name + " is missing");
      ++removed;
    }
  }
  CHECK(removed > 45);
}

TEST_CASE("attributes that are not what they should be") {
  const auto text_type = [](std::size_t bytes) {
    hdf5::Datatype type(need(H5Tcopy(H5T_C_S1)));
    need(H5Tset_size(type.id(), bytes));
    return type;
  };
  refuses([](hid_t file) { replace_text(file, "/model", "name", std::string(40000, 'x')); }, "/model",
          "attribute name is not fixed-length text of at most 32 KiB");
  refuses(
      [&](hid_t file) {
        const hdf5::Datatype type = text_type(H5T_VARIABLE);
        const char* text = "hello";
        replace_attribute(file, "/model", "name", type.id(), &text);
      },
      "/model", "attribute name is not fixed-length text");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "name", 3); }, "/model",
          "attribute name is not fixed-length text");
  refuses([](hid_t file) { replace_text(file, "/model", "n_layers", "2"); }, "/model",
          "attribute n_layers is not an integer");
  refuses([](hid_t file) { replace_attribute<double>(file, "/model", "n_layers", 2.0); }, "/model",
          "attribute n_layers is not an integer");
  refuses([](hid_t file) { replace_attribute<std::int32_t>(file, "/model", "n_layers", -2); }, "/model",
          "attribute n_layers is negative");
  refuses([](hid_t file) { replace_attribute<std::uint64_t>(file, "/model", "n_layers", 1ULL << 40); },
          "/model", "attribute n_layers is 1099511627776, more than");
  refuses([](hid_t file) { replace_attribute<std::uint64_t>(file, "/", "n_tokens", 1ULL << 40); },
          "victim.h5:/", "attribute n_tokens is 1099511627776, more than 16777216");
  refuses([](hid_t file) { replace_attribute<std::uint8_t>(file, "/capture", "rope_fp32", 2); }, "/capture",
          "attribute rope_fp32 is 2, more than 1");
  refuses([](hid_t file) { replace_attribute<double>(file, "/model", "attn_scale", std::nan("")); }, "/model",
          "attribute attn_scale is not finite");
  refuses(
      [](hid_t file) {
        const long double value = 1;
        replace_attribute(file, "/model", "attn_scale", H5T_NATIVE_LDOUBLE, &value);
      },
      "/model", "attribute attn_scale is not a real number");
  refuses(
      [](hid_t file) {  // a list in place of a scalar
        const hdf5::Object model(need(H5Oopen(file, "/model", H5P_DEFAULT)));
        need(H5Adelete(model.id(), "n_layers"));
        const hsize_t many[] = {1000};
        const hdf5::Dataspace space(need(H5Screate_simple(1, many, nullptr)));
        const hdf5::Attribute attribute(
            need(H5Acreate2(model.id(), "n_layers", H5T_STD_U32LE, space.id(), H5P_DEFAULT, H5P_DEFAULT)));
      },
      "/model", "attribute n_layers is not a single value");
}

TEST_CASE("integers and reals of other widths are fine in attributes") {
  const Victim victim;
  edit(victim.path(), [](hid_t file) {
    replace_attribute<std::int64_t>(file, "/model", "n_layers", 2);
    replace_attribute<std::uint8_t>(file, "/model", "n_q_heads", 4);
    replace_attribute<float>(file, "/model", "attn_scale", 0.5F);
  });
  const auto open = trace::open_trace(victim.path());
  CHECK(open->header().model.n_layers == 2);
  CHECK(open->header().model.n_q_heads == 4);
  CHECK(open->header().model.attn_scale == 0.5);
}

TEST_CASE("versions, and files that were never finished") {
  refuses([](hid_t file) { replace_attribute<std::uint16_t>(file, "/", "schema_major", 3); }, "victim.h5",
          "has schema 3; this kvsim reads schemas 1 and 2");
  const auto needs = [](hid_t file, std::uint64_t bits) {
    replace_attribute<std::uint16_t>(file, "/", "schema_major", 2);
    replace_attribute<std::uint64_t>(file, "/", "needs", bits);
  };
  refuses([&](hid_t file) { needs(file, 16); }, "victim.h5",
          "says what this kvsim does not know (needs = 16)");
  refuses([&](hid_t file) { needs(file, 2); }, "/model", "sinks");
  refuses([&](hid_t file) { needs(file, 1); }, "/model", "n_rotations");
  refuses([](hid_t file) { replace_attribute<std::uint8_t>(file, "/", "complete", 0); }, "victim.h5",
          "is incomplete");
  refuses([](hid_t file) { replace_text(file, "/", "format", "other"); }, "victim.h5", "not a kvsim trace");
  refuses([](hid_t file) { replace_text(file, "/capture", "layers_kept", "0,1"); }, "layers_kept",
          "left out");

  const Victim partial;
  edit(partial.path(), [](hid_t file) { replace_attribute<std::uint8_t>(file, "/", "complete", 0); });
  trace::ReadOptions options;
  options.allow_partial = true;
  CHECK_NOTHROW(trace::open_trace(partial.path(), options));

  const Victim newer;  // a later minor version: unknown objects are ignored
  edit(newer.path(), [](hid_t file) {
    replace_attribute<std::uint16_t>(file, "/", "schema_minor", 7);
    replace_attribute<std::uint64_t>(file, "/", "features", ~std::uint64_t{1U << 3});  // digests
    replace_text(file, "/model", "colour", "green");
    need(H5Lcreate_soft("/nowhere", file, "/layers/0000/k_post", H5P_DEFAULT, H5P_DEFAULT));
  });
  CHECK_NOTHROW(trace::open_trace(newer.path()));
}

TEST_CASE("contents that contradict themselves") {
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "n_q_heads", 5); }, "/model",
          "n_q_heads 5 is not a multiple of n_kv_heads 2");
  refuses([](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "vocab_size", 3); },
          "/tokens/id[3]", "outside the vocabulary");
  refuses([](hid_t file) { poke<std::int32_t>(file, "/tokens/id", 2, -7); }, "/tokens/id[2]",
          "outside the vocabulary");
  refuses([](hid_t file) { poke<std::int32_t>(file, "/segments/parent", 0, 1); }, "/segments/parent[0]",
          "parent must come before its child");
  refuses([](hid_t file) { poke<std::int32_t>(file, "/segments/parent", 1, 1); }, "/segments/parent[1]",
          "parent must come before its child");
  refuses([](hid_t file) { poke<std::uint64_t>(file, "/segments/begin", 1, UINT64_MAX); },
          "/segments/begin[1]", "without gaps");
  refuses([](hid_t file) { poke<std::uint8_t>(file, "/segments/phase", 1, 200); }, "/segments/phase[1]",
          "unknown");
  refuses([](hid_t file) { poke<std::uint32_t>(file, "/sequences/leaf", 0, 2); }, "/sequences/leaf[0]",
          "no segment");
  refuses([](hid_t file) { poke<std::int32_t>(file, "/tokens/position", 1, 0); }, "/tokens/position[1]",
          "ascend");
  refuses([](hid_t file) { poke<std::uint64_t>(file, "/text/offset", 2, 9); }, "/text/offset[3]", "falls");
  refuses([](hid_t file) { poke<std::uint64_t>(file, "/layers/0000/q_token", 1, 2); }, "/layers/0001/q_token",
          "differs from the first layer's");
  refuses([](hid_t file) { poke<std::int32_t>(file, "/model/layer_window", 0, 0); }, "/model/layer_window[0]",
          "window");
}

TEST_CASE("attention rows that do not add up") {
  const std::string rows = "/layers/0001/rows/";
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "ptr", 1, 99); }, rows + "ptr[0]",
          "does not reach");
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "ptr", 2, 1); }, rows + "ptr[1]",
          "does not reach");
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "ptr", 0, 1); }, rows + "ptr",
          "does not start at 0");
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "first_key", 1, 5); }, rows + "first_key[1]",
          "lies after its own token");
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "first_key", 1, 4); }, rows + "ptr[1]",
          "does not reach");
  refuses([&](hid_t file) { poke<std::uint64_t>(file, rows + "token", 1, 3); }, rows + "token", "differs");
  refuses(
      [&](hid_t file) {
        poke<std::uint64_t>(file, "/layers/0000/rows/token", 1, 77);
        poke<std::uint64_t>(file, rows + "token", 1, 77);
      },
      "/rows/token[1]", "is not a later token");
  refuses([&](hid_t file) { remove_link(file, "/layers/0000/rows"); }, "/layers/0001/rows",
          "have no attention rows");
  refuses([&](hid_t file) { remove_link(file, "/layers/0001/rows"); }, "/layers/0001/rows", "is missing");

  const Victim victim;  // visible only when they are read
  edit(victim.path(), [&](hid_t file) { poke<float>(file, rows + "p", 7, 0.9F); });
  Progress progress;
  const trace::CheckReport report = trace::check_trace(victim.path(), progress);
  REQUIRE(report.problems.size() == 1);
  CHECK_THAT(report.problems[0], Catch::Contains(rows + "p: row 0 of head 1 is no distribution"));
}

TEST_CASE("output weights that do not fit the model or each other") {
  const std::string first = "/layers/0000/wo", second = "/layers/0001/wo";
  const std::vector<hsize_t> shape{4, 8, 6};
  const std::vector<float> data(4 * 8 * 6, 1.0F);
  const std::vector<std::uint16_t> words(4 * 8 * 6, 0x3f80);
  refuses([&](hid_t file) { remove_link(file, first); }, second, "have no output weights");
  refuses([&](hid_t file) { remove_link(file, second); }, second, "is missing");
  refuses(
      [&](hid_t file) {
        replace_dataset(file, first, H5T_IEEE_F32LE, {4, 6, 8}, data.data());
      },
      first, "has shape [4, 6, 8], but /model makes it [4, 8, 6]");
  refuses(
      [&](hid_t file) {
        replace_dataset(file, first, H5T_IEEE_F32LE, {4, 8 * 6}, data.data());
      },
      first, "does not have 3 dimensions");
  refuses([&](hid_t file) { replace_attribute<std::uint32_t>(file, "/model", "hidden_size", 1U << 31); },
          first, "has shape [4, 8, 6], but /model makes it [4, 8, 2147483648]");
  refuses(
      [&](hid_t file) {  // more than the file holds, in the size the model asks for
        replace_attribute<std::uint32_t>(file, "/model", "hidden_size", 1U << 31);
        replace_dataset(file, first, H5T_IEEE_F32LE, {4, 8, 1U << 31}, nullptr);
      },
      first, "needs far more than the 0 bytes stored");
  refuses(
      [&](hid_t file) {
        replace_attribute<std::uint32_t>(file, "/model", "hidden_size", 0);
        for (const std::string& path : {first, second})
          replace_dataset(file, path, H5T_IEEE_F32LE, {4, 8, 0}, nullptr);
      },
      "/model", "hidden_size is 0, not within 1 to 65536");
  refuses(
      [&](hid_t file) {
        replace_dataset(file, second, H5T_STD_U16LE, shape, words.data());
        replace_text(file, second, "elem", "bf16");
      },
      second, "is bf16, the first layer's is f32");
  refuses([&](hid_t file) { replace_dataset(file, first, H5T_STD_U16LE, shape, words.data()); }, first,
          "no attribute elem says what they are");

  const auto problems = [&](const std::function<void(hid_t)>& change) {  // visible only when they are read
    const Victim victim;
    edit(victim.path(), change);
    Progress progress;
    return trace::check_trace(victim.path(), progress).problems;
  };
  const auto changed = problems([&](hid_t file) { poke<float>(file, second, 7, 0.9F); });
  REQUIRE(changed.size() == 1);  // the content digest is that of the run
  CHECK_THAT(changed[0], Catch::Contains(second + ": does not match its sha256"));
  const auto nan = problems([&](hid_t file) { poke<float>(file, first, 8 * 6 + 6 + 1, std::nanf("")); });
  REQUIRE(nan.size() == 2);
  CHECK_THAT(nan[0], Catch::Contains(first + ": holds 1 values that are not finite, the first at [1, 1, 1]"));
}

TEST_CASE("impossible column statistics") {
  const auto float_type = [] { return hdf5::datatype(hdf5::Type::f32); };
  const auto refused = [&](const std::string& where, const std::string& what,
                           const std::function<void(hid_t)>& change) {
    const Victim victim;
    edit(victim.path(), change);
    require_refused(victim.path(), where, what);
  };
  const std::vector<float> zeros(4 * 5);
  refused("/layers/0001", "column", [](hid_t file) { remove_link(file, "/layers/0001/column"); });
  refused("/layers/0001/column", "layers before this one have no column statistics",
          [](hid_t file) { remove_link(file, "/layers/0000/column"); });
  refused("/layers/0000/column/sum", "whole segments", [&](hid_t file) {
    for (const char* layer : {"0000", "0001"})
      for (const char* name : {"sum", "sum_squares"})
        replace_dataset(file, std::string("/layers/") + layer + "/column/" + name, float_type().id(), {4, 3},
                        zeros.data());
  });
  refused("/layers/0000/column/sum", "not of one prompt", [&](hid_t file) {  // counts the generated token,
                                                                             // too
    for (const char* layer : {"0000", "0001"})
      for (const char* name : {"sum", "sum_squares"})
        replace_dataset(file, std::string("/layers/") + layer + "/column/" + name, float_type().id(), {4, 5},
                        zeros.data());
  });
  refused("/layers/0000/column/sum", "not 1 to n_tokens", [&](hid_t file) {
    replace_dataset(file, "/layers/0000/column/sum", float_type().id(), {4, 1 << 20},
                    std::vector<float>(4 << 20).data());
  });
  refused("/layers/0001/column/sum", "first layer", [&](hid_t file) {
    replace_dataset(file, "/layers/0001/column/sum", float_type().id(), {4, 3}, zeros.data());
  });

  // Errors in the payload are refused on reading, and found by check.
  struct Payload {
    const char* dataset;
    std::size_t index;
    float value;
    const char* what;
  };
  for (const Payload& harm : {Payload{"sum", 5, -1.0F, "[1, 1]: is no sum of probabilities"},
                              Payload{"sum_squares", 4, std::numeric_limits<float>::quiet_NaN(),
                                      "[1, 0]: is no sum of probabilities"},
                              Payload{"sum", 15, 1.5F, "[3, 3]: is more than the 1 queries that see the key"},
                              Payload{"sum_squares", 12, 3.0F, "[3, 0]: is more than the sum"},
                              Payload{"sum", 13, 1.0F, "not to the number of queries, 4"}}) {
    const Victim victim;
    edit(victim.path(), [&](hid_t file) {
      poke(file, std::string("/layers/0001/column/") + harm.dataset, harm.index, harm.value);
    });
    Progress progress;
    const trace::CheckReport report = trace::check_trace(victim.path(), progress);
    INFO(harm.what);
    bool named = false;
    for (const std::string& problem : report.problems)
      named = named || (problem.find("/layers/0001/column/") != std::string::npos &&
                        problem.find(harm.what) != std::string::npos);
    CHECK(named);
  }
}

TEST_CASE("lists may not take more memory than allowed") {
  const Victim victim;
  trace::ReadOptions options;
  options.max_header_bytes = 60;
  CHECK_THROWS_WITH(trace::open_trace(victim.path(), options), Catch::Contains("more memory than allowed"));
}

TEST_CASE("files that are not HDF5") {
  const Scratch scratch;
  const std::string path = scratch.file("victim.h5");
  require_refused(path, "victim.h5", "No such file or directory");
  std::ofstream(path).close();
  require_refused(path, "victim.h5", "is not an HDF5 file");
  std::ofstream(path) << "\x89HDF\r\n\x1a";
  require_refused(path, "victim.h5", "is not an HDF5 file");
  std::ofstream(path) << "\x89HDF\r\n\x1a\n and then nothing that makes sense";
  require_refused(path, "victim.h5", "cannot be opened");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  require_refused(path, "victim.h5", "is not a regular file");
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // a blocking open would wait forever
  require_refused(path, "victim.h5", "is not a regular file");
  std::filesystem::remove(path);
  {
    const hdf5::Session session;
    const hdf5::File foreign(need(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT)));
  }
  require_refused(path, "victim.h5", "is an HDF5 file, but not a kvsim trace");
}

TEST_CASE("a file cut off anywhere is refused") {
  const Victim victim(Elem::bf16);
  const std::string whole = bytes_of(victim.path());
  std::size_t cuts = 0;
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 40) {
    std::ofstream(victim.path(), std::ios::binary) << whole.substr(0, size);
    CHECK_THROWS_AS(trace::open_trace(victim.path()), Error);
    ++cuts;
  }
  CHECK(cuts > 150);
}

}  // namespace kvsim::test::test_hostile
