#include "tests/unit/traces/hdf5_edit.hpp"

#include <stdexcept>

namespace kvsim::test {
namespace {

herr_t list_object(hid_t /*root*/, const char* name, const H5O_info_t* info, void* out) {
  if (std::string(name) != ".")
    static_cast<std::vector<Listed>*>(out)->push_back(
        {"/" + std::string(name), info->type == H5O_TYPE_GROUP});
  return 0;
}

herr_t list_attribute(hid_t /*object*/, const char* name, const H5A_info_t* /*info*/, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

hdf5::Object open_object(hid_t file, const std::string& path) {
  return hdf5::Object(need(H5Oopen(file, path.c_str(), H5P_DEFAULT)));
}

}  // namespace

hid_t need(hid_t result) {
  if (result < 0) throw std::runtime_error("edit: " + hdf5::last_cause());
  return result;
}

std::vector<Listed> objects_of(const std::string& file) {
  const hdf5::Session session;
  std::vector<Listed> out;
  const hdf5::File open(need(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)));
  need(H5Ovisit2(open.id(), H5_INDEX_NAME, H5_ITER_INC, list_object, &out, H5O_INFO_BASIC));
  return out;
}

std::vector<std::string> attributes_of(const std::string& file, const std::string& object) {
  const hdf5::Session session;
  std::vector<std::string> out;
  const hdf5::File open(need(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)));
  const hdf5::Object target = open_object(open.id(), object);
  need(H5Aiterate2(target.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, list_attribute, &out));
  return out;
}

void edit(const std::string& file, const std::function<void(hid_t)>& change) {
  const hdf5::Session session;
  const hdf5::PropertyList access(need(H5Pcreate(H5P_FILE_ACCESS)));
  need(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110));
  hdf5::File open(need(H5Fopen(file.c_str(), H5F_ACC_RDWR, access.id())));
  change(open.id());
  need(open.release());
}

void link_external(const std::string& to_file, const std::string& to_path, hid_t file,
                   const std::string& path) {
  H5L_class_t impostor{};
  impostor.version = H5L_LINK_CLASS_T_VERS;
  impostor.id = H5L_TYPE_EXTERNAL;
  impostor.trav_func = [](const char*, hid_t, const void*, std::size_t, hid_t, hid_t) -> hid_t { return -1; };
  need(H5Lregister(&impostor));
  const herr_t made =
      H5Lcreate_external(to_file.c_str(), to_path.c_str(), file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  need(H5Lunregister(H5L_TYPE_EXTERNAL));
  need(made);
}

void remove_link(hid_t file, const std::string& path) {
  need(H5Ldelete(file, path.c_str(), H5P_DEFAULT));
}

void remove_attribute(hid_t file, const std::string& object, const std::string& name) {
  const hdf5::Object target = open_object(file, object);
  need(H5Adelete(target.id(), name.c_str()));
}

void replace_dataset(hid_t file, const std::string& path, hid_t type, const std::vector<hsize_t>& dims,
                     const void* data, hid_t creation) {
  remove_link(file, path);
  const hdf5::Dataspace space(need(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  const hdf5::Dataset dataset(
      need(H5Dcreate2(file, path.c_str(), type, space.id(), H5P_DEFAULT, creation, H5P_DEFAULT)));
  if (data != nullptr) need(H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
}

void replace_attribute(hid_t file, const std::string& object, const std::string& name, hid_t type,
                       const void* value) {
  const hdf5::Object target = open_object(file, object);
  if (H5Aexists(target.id(), name.c_str()) > 0) need(H5Adelete(target.id(), name.c_str()));
  const hdf5::Dataspace space(need(H5Screate(H5S_SCALAR)));
  const hdf5::Attribute attribute(
      need(H5Acreate2(target.id(), name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT)));
  need(H5Awrite(attribute.id(), type, value));
}

void replace_text(hid_t file, const std::string& object, const std::string& name, const std::string& text) {
  const hdf5::Datatype type(need(H5Tcopy(H5T_C_S1)));
  need(H5Tset_size(type.id(), text.size()));
  replace_attribute(file, object, name, type.id(), text.data());
}

hdf5::PropertyList creation_list(const std::function<void(hid_t)>& set) {
  hdf5::PropertyList list(need(H5Pcreate(H5P_DATASET_CREATE)));
  set(list.id());
  return list;
}

}  // namespace kvsim::test
