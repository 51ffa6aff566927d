# The toolchain of preset `arm64`: Debian's cross compiler, and its arm64 packages as tools/arm64.sh unpacks them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT "$ENV{KVSIM_ARM64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# FindHDF5 asks h5cc of this machine, whose headers serve both, for the name of the library.
set(HDF5_C_LIBRARY_hdf5 "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/libhdf5_serial.so" CACHE FILEPATH "")
