#pragma once
/// Turns valid trace files into hostile ones with the C API of HDF5.
#include <functional>
#include <string>
#include <vector>

#include "traces/format/hdf5_file.hpp"

namespace kvsim::test {

/// Every object of a file: "/model", "/model/inv_freq", ... A group comes before its members.
struct Listed {
  std::string path;
  bool is_group;
};
std::vector<Listed> objects_of(const std::string& file);

/// Names of an object's attributes.
std::vector<std::string> attributes_of(const std::string& file, const std::string& object);

/// Opens `file` for writing, calls `change` and closes it. Throws std::runtime_error when the change itself
/// fails.
void edit(const std::string& file, const std::function<void(hid_t)>& change);

/// Within edit(): checks the return code of a call that must succeed and returns it.
hid_t need(hid_t result);

/// Makes an external link. External links are unregistered in this process (hdf5_file.hpp), so it registers a
/// stand-in class for the call.
void link_external(const std::string& to_file, const std::string& to_path, hid_t file,
                   const std::string& path);

void remove_link(hid_t file, const std::string& path);
void remove_attribute(hid_t file, const std::string& object, const std::string& name);

/// Replaces a dataset by another of this type, shape and creation list, with `data` (null: nothing written).
void replace_dataset(hid_t file, const std::string& path, hid_t type, const std::vector<hsize_t>& dims,
                     const void* data, hid_t creation = H5P_DEFAULT);

/// Replaces an attribute by a scalar.
void replace_attribute(hid_t file, const std::string& object, const std::string& name, hid_t type,
                       const void* value);
template <typename Value>
void replace_attribute(hid_t file, const std::string& object, const std::string& name, Value value) {
  replace_attribute(file, object, name, hdf5::datatype(hdf5::type_of<Value>()).id(), &value);
}
void replace_text(hid_t file, const std::string& object, const std::string& name, const std::string& text);

/// One element of a dataset.
template <typename Value>
void poke(hid_t file, const std::string& path, std::size_t index, Value value);

/// A dataset creation list that `set` fills.
hdf5::PropertyList creation_list(const std::function<void(hid_t)>& set);

}  // namespace kvsim::test

template <typename Value>
void kvsim::test::poke(hid_t file, const std::string& path, std::size_t index, Value value) {
  const hdf5::Dataset dataset(need(H5Dopen2(file, path.c_str(), H5P_DEFAULT)));
  const hdf5::Dataspace space(need(H5Dget_space(dataset.id())));
  const hdf5::Datatype element = hdf5::datatype(hdf5::type_of<Value>());
  std::vector<Value> all(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.id())));
  need(H5Dread(dataset.id(), element.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()));
  all.at(index) = value;
  need(H5Dwrite(dataset.id(), element.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()));
}
