#include "traces/format/sealed_list.hpp"

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::trace {
namespace {

constexpr const char* kSeal = "sha256";

std::string digest_of(std::span<const std::byte> stored) {
  Sha256 digest;
  digest.update(stored.data(), stored.size());
  return digest.hex();
}

hdf5::Object open_list(hid_t parent, const std::string& name, std::string_view where) {
  return hdf5::Object(
      hdf5::check(H5Oopen(parent, name.c_str(), H5P_DEFAULT), "cannot open dataset " + name, where));
}

}  // namespace

std::string put_sealed_array(hid_t parent, const std::string& name, hdf5::Type type, const void* data,
                             const std::vector<std::uint64_t>& dims, std::string_view where, bool sealed) {
  hdf5::put_array(parent, name, type, data, dims, where);
  std::size_t bytes = hdf5::type_bytes(type);
  for (const std::uint64_t dim : dims) bytes *= dim;
  std::string digest = digest_of({static_cast<const std::byte*>(data), bytes});
  const hdf5::Session session;
  if (sealed) hdf5::put_text(open_list(parent, name, where).id(), kSeal, digest, where);
  return digest;
}

void replace_sealed_list(hid_t parent, const std::string& name, const std::vector<std::uint32_t>& values,
                         std::string_view where) {
  const hdf5::Session session;
  hdf5::replace_list(parent, name, values, where);
  const hdf5::Object list = open_list(parent, name, where);
  if (hdf5::check(H5Aexists(list.id(), kSeal), "attributes cannot be read", where) == 0) return;
  hdf5::check(H5Adelete(list.id(), kSeal), std::string("cannot replace attribute ") + kSeal, where);
  hdf5::put_text(list.id(), kSeal, digest_of(std::as_bytes(std::span(values))), where);
}

void check_seal(const hdf5::InputDataset& list, std::span<const std::byte> stored) {
  const std::string claimed = list.text(kSeal);
  if (!claimed.empty() && claimed != digest_of(stored))
    input_error("is damaged: it does not match its sha256", list.where(),
                "Capture the trace again, or take a sound copy of it.");
}

}  // namespace kvsim::trace
