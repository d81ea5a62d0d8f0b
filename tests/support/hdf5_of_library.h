// A file as HDF5's own library sees it, and therefore h5py: the external reference for the lists of datasets that this
// program writes and reads instead.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain::testing {

class Hdf5OfLibrary {
 public:
  explicit Hdf5OfLibrary(const std::string& path) : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {}
  Hdf5OfLibrary(const Hdf5OfLibrary&) = delete;
  Hdf5OfLibrary& operator=(const Hdf5OfLibrary&) = delete;
  ~Hdf5OfLibrary() { H5Fclose(file_); }
  bool is_open() const { return file_ >= 0; }

  std::int64_t integer(const std::string& name) const { return attribute(name, std::int64_t{-1}, H5T_NATIVE_INT64); }
  double number(const std::string& name) const { return attribute(name, -1.0, H5T_NATIVE_DOUBLE); }
  std::string text(const std::string& name) const {
    const hid_t id = H5Aopen(file_, name.c_str(), H5P_DEFAULT), type = H5Aget_type(id);
    std::string value(H5Tget_size(type), '\0');
    H5Aread(id, type, value.data());
    H5Tclose(type);
    H5Aclose(id);
    return value.c_str();  // up to the first NUL
  }
  /// Returns the offset of a dataset's bytes.
  std::int64_t offset(const std::string& name) const {
    const hid_t id = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    const haddr_t offset = H5Dget_offset(id);
    H5Dclose(id);
    return static_cast<std::int64_t>(offset);
  }
  /// Returns all elements of a dataset.
  std::vector<double> values(const std::string& name) const {
    const hid_t id = H5Dopen2(file_, name.c_str(), H5P_DEFAULT), space = H5Dget_space(id);
    std::vector<double> elements(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    H5Dread(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data());
    H5Sclose(space);
    H5Dclose(id);
    return elements;
  }

 private:
  template <class T>
  T attribute(const std::string& name, T value, hid_t type) const {
    const hid_t id = H5Aopen(file_, name.c_str(), H5P_DEFAULT);
    H5Aread(id, type, &value);
    H5Aclose(id);
    return value;
  }

  hid_t file_;
};

}  // namespace ringtrain::testing
