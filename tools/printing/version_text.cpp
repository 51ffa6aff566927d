#include "tools/printing/version_text.hpp"

#include <hdf5.h>
#include <oneapi/tbb/version.h>
#include <openssl/crypto.h>
#include <unicode/uvernum.h>
#include <unicode/uversion.h>

#include <CLI/Version.hpp>
#include <Eigen/Core>
#include <array>
#include <boost/version.hpp>
#include <sstream>

#include "sim/base/version.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {
namespace {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  std::ostringstream text;
  text << major << '.' << minor << '.' << release;
  return text.str();
}

std::string icu_version() {
  UVersionInfo version;
  u_getVersion(version);
  std::array<char, U_MAX_VERSION_STRING_LENGTH> text{};
  u_versionToString(version, text.data());
  return text.data();
}

}  // namespace

std::string version_text() {
  std::ostringstream text;
  text << "kvsim " << kVersion << '\n'
       << "commit     " << (*kCommit != '\0' ? kCommit : "unknown") << '\n'
       << "compiler   " << kCompiler << '\n'
       << "build type " << kBuildType << '\n'
       << "CUDA       " << kCuda << '\n'
       << "MPI        " << front_end().mpi() << '\n'
       << "libraries  Boost " << BOOST_VERSION / 100000 << '.' << BOOST_VERSION / 100 % 1000 << '.'
       << BOOST_VERSION % 100 << ", HDF5 " << hdf5_version() << ", Eigen " << EIGEN_WORLD_VERSION << '.'
       << EIGEN_MAJOR_VERSION << '.' << EIGEN_MINOR_VERSION << ", "
       << "oneTBB " << TBB_VERSION_MAJOR << '.' << TBB_VERSION_MINOR << " (interface "
       << TBB_runtime_interface_version() << "), ICU " << icu_version() << ", CLI11 " << CLI11_VERSION
       << ", OpenSSL " << OpenSSL_version(OPENSSL_VERSION_STRING);
  return text.str();
}

}  // namespace kvsim::tools
