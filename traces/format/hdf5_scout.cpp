#include "traces/format/hdf5_scout.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/isolated_run.hpp"
#include "sim/base/shortage.hpp"

namespace kvsim::hdf5 {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kMostAttributeBytes = 1 << 20;  ///< libhdf5 writes larger ones nowhere near a trace

/// One place in a file tells an object from another.
haddr_t address_of(hid_t object, const std::string& where) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info1_t info{};
  check(H5Oget_info1(object, &info), "object cannot be read", where);
#else
  H5O_info_t info{};
  check(H5Oget_info2(object, &info, H5O_INFO_BASIC), "object cannot be read", where);
#endif
  return info.addr;
}

class Walk {
 public:
  explicit Walk(std::string path) : path_(std::move(path)) {}

  void run(hid_t file) {
    pending_.emplace_back("/");
    while (!pending_.empty()) {
      const std::string name = std::move(pending_.back());
      pending_.pop_back();
      const Object object(
          check(H5Oopen(file, name.c_str(), H5P_DEFAULT), "cannot be opened", path_ + ":" + name));
      look(object.id(), name);
    }
  }

 private:
  void look(hid_t object, const std::string& name) {
    const std::string where = path_ + ":" + name;
    if (!seen_.insert(address_of(object, where)).second) return;
    look_at_attributes(object, where);
    const H5I_type_t kind = H5Iget_type(object);
    if (kind == H5I_GROUP) follow_links(object, name);
    if (kind == H5I_DATASET) look_at_dataset(object, where);
  }

  static void look_at_attributes(hid_t object, const std::string& where) {
    Names names;
    const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* list) -> herr_t {
      static_cast<Names*>(list)->emplace_back(name);
      return 0;
    };
    check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, keep, &names),
          "attributes cannot be read", where);
    for (const std::string& name : names) {
      const std::string failure = "attribute " + name + " cannot be read";
      check(H5Aexists(object, name.c_str()), failure, where);
      const Attribute attribute(check(H5Aopen(object, name.c_str(), H5P_DEFAULT), failure, where));
      const Dataspace space(check(H5Aget_space(attribute.id()), failure, where));
      const Datatype type(check(H5Aget_type(attribute.id()), failure, where));
      const std::size_t bytes = H5Tget_size(type.id());
      // Only what readers accept has values that they read: single numbers and fixed-length texts.
      if (H5Sget_simple_extent_type(space.id()) != H5S_SCALAR || bytes == 0 || bytes > kMostAttributeBytes)
        continue;
      std::vector<char> value(std::max<std::size_t>(bytes, 8));
      const H5T_class_t kind = H5Tget_class(type.id());
      if (kind == H5T_STRING && H5Tis_variable_str(type.id()) == 0)
        check(H5Aread(attribute.id(), type.id(), value.data()), failure, where);
      if (kind == H5T_INTEGER && bytes <= 8)
        check(H5Aread(attribute.id(),
                      H5Tget_sign(type.id()) == H5T_SGN_NONE ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64,
                      value.data()),
              failure, where);
      if (kind == H5T_FLOAT && bytes <= 8)
        check(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, value.data()), failure, where);
    }
  }

  void follow_links(hid_t group, const std::string& group_name) {
    const std::string where = path_ + ":" + group_name;
    using Links = std::vector<std::pair<std::string, bool>>;  // and whether it is a hard link
    Links links;
#if H5_VERSION_GE(1, 12, 0)
    using Info = H5L_info2_t;
    const auto iterate = H5Literate2;
#else
    using Info = H5L_info_t;
    const auto iterate = H5Literate;
#endif
    const auto keep = [](hid_t, const char* name, const Info* info, void* list) -> herr_t {
      static_cast<Links*>(list)->emplace_back(name, info->type == H5L_TYPE_HARD);
      return 0;
    };
    check(iterate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, keep, &links), "links cannot be read",
          where);
    for (const auto& [link, hard] : links) {
      const std::string child = (group_name == "/" ? group_name : group_name + "/") + link;
      check(H5Lexists(group, link.c_str(), H5P_DEFAULT), "links cannot be read", path_ + ":" + child);
      if (hard) pending_.push_back(child);
    }
  }

  static void look_at_dataset(hid_t dataset, const std::string& where) {
    const Datatype type(check(H5Dget_type(dataset), "type cannot be read", where));
    for (const Type known : {Type::u8, Type::u16, Type::u32, Type::u64, Type::i32, Type::i64, Type::f32,
                             Type::f64, Type::f16, Type::bf16})
      check(H5Tequal(type.id(), datatype(known).id()), "type cannot be read", where);
    const PropertyList creation(check(H5Dget_create_plist(dataset), "layout cannot be read", where));
    if (H5Pget_layout(creation.id()) == H5D_VIRTUAL) return;  // it would open other files; readers refuse it
    const Dataspace space(check(H5Dget_space(dataset), "shape cannot be read", where));
    std::array<hsize_t, H5S_MAX_RANK> extent{};
    if (H5Sget_simple_extent_type(space.id()) == H5S_SIMPLE)
      check(H5Sget_simple_extent_dims(space.id(), extent.data(), nullptr), "shape cannot be read", where);
    H5Eclear2(H5E_DEFAULT);
    // Goes through the whole index of the chunks. It has no way but the error stack to say that this failed.
    if (H5Dget_storage_size(dataset) == 0 && H5Eget_num(H5E_DEFAULT) > 0)
      fail("storage cannot be read", where);
  }

  std::string path_;
  Names pending_;  // objects are opened one at a time: an open one takes much memory
  std::set<haddr_t> seen_;
};

/// Lets libhdf5 forget soon what it has read: it needs some twenty blocks for an object, and there would not
/// be guarded ones for all objects of a large file.
void keep_little_metadata(hid_t file, const std::string& path) {
  H5AC_cache_config_t config{};
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  check(H5Fget_mdc_config(file, &config), "metadata cannot be read", path);
  config.set_initial_size = 1;
  config.initial_size = config.min_size = config.max_size = std::size_t{16} << 10;
  config.incr_mode = H5C_incr__off;
  config.flash_incr_mode = H5C_flash_incr__off;
  config.decr_mode = H5C_decr__off;
  check(H5Fset_mdc_config(file, &config), "metadata cannot be read", path);
}

}  // namespace

void scout(const std::string& path, const PropertyList& access) {
  const Session session;
  static const AllocationCalls kCalls(reinterpret_cast<const void*>(H5Fopen));
  const auto look = [&]() -> std::string {
    Session::only_thread();
    H5garbage_collect();  // frees blocks that it keeps for later, so that it asks for guarded ones
    kCalls.guard();
    const File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()));
    if (!file) return {};  // whoever asked finds the same when it opens the file, and says why
    try {
      keep_little_metadata(file.id(), path);
      Walk(path).run(file.id());
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  IsolatedEnd end = run_isolated(look, path);
  // What memory was lacking for succeeds the second time; damage does not.
  if (!end.returned || !end.text.empty()) end = run_isolated(look, path);
  if (end.returned && end.text.empty()) return;
  if (end.limited)
    refuse_shortage(ENOMEM, "cannot be looked at within the limit on memory (ulimit -v)", path);
  static constexpr const char* kHint =
      "Its structure is damaged: take a sound copy of the file, or make it again.";
  if (end.returned) input_error(end.text, "", kHint);
  input_error("a process that tried to read it " + end.text, path, kHint);
}

}  // namespace kvsim::hdf5
