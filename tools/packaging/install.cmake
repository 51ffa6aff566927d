# What `cmake --install` installs, by component: `command`, the program; `development`, the libraries and their headers for
# find_package(kvsim); `python`, the package, where pip builds (tools/python/core/python_core.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The command describes itself: its manual pages and completions are what it prints.
install(TARGETS kvsim COMPONENT command)
set(described ${CMAKE_BINARY_DIR}/generated/described)
install(CODE "
  file(MAKE_DIRECTORY \"${described}\")
  foreach(shell IN ITEMS bash zsh)
    execute_process(COMMAND \"$<TARGET_FILE:kvsim>\" completion \${shell} OUTPUT_FILE \"${described}/kvsim.\${shell}\"
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND \"$<TARGET_FILE:kvsim>\" man --all \"${described}/man1\" --overwrite COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT command)
install(DIRECTORY ${described}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command)
install(FILES ${described}/kvsim.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kvsim
        COMPONENT command)
install(FILES ${described}/kvsim.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _kvsim COMPONENT command)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT command)

# Libraries with sanitizers in them are for our own tests.
if(KVSIM_SANITIZE)
  return()
endif()

# kvsim::kvsim is all of them; kvsim::sim, kvsim::policies, ... are single ones. Some headers show HDF5's and Boost's types.
add_library(kvsim_all INTERFACE)
target_link_libraries(kvsim_all INTERFACE kvsim_study kvsim_hdf5 Boost::json)
set_target_properties(kvsim_all PROPERTIES EXPORT_NAME kvsim)
target_compile_features(kvsim_base INTERFACE cxx_std_20)
# The linker may take a program's copy of an inline function for the library's: it must round as ours does.
target_compile_options(kvsim_base INTERFACE $<INSTALL_INTERFACE:-ffp-contract=off>)

set(installed base traces model capture policies feed sim loop cost analysis evaluation study hdf5 indexes)
if(KVSIM_REQUESTS)
  list(APPEND installed requests)
endif()
if(TARGET kvsim_cuda)
  list(APPEND installed cuda)
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH CUDA_FOLDER)
endif()
foreach(library IN LISTS installed)
  set_target_properties(kvsim_${library} PROPERTIES EXPORT_NAME ${library})
endforeach()
list(TRANSFORM installed PREPEND kvsim_)
set(headers_folder ${CMAKE_INSTALL_INCLUDEDIR}/kvsim)
install(TARGETS ${installed} kvsim_all EXPORT kvsim-targets COMPONENT development
        FILE_SET HEADERS DESTINATION ${headers_folder} COMPONENT development)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvsim)
install(EXPORT kvsim-targets NAMESPACE kvsim:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(tools/packaging/kvsim-config.cmake.in ${CMAKE_BINARY_DIR}/generated/kvsim-config.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/kvsim-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/kvsim-config.cmake ${CMAKE_BINARY_DIR}/generated/kvsim-config-version.cmake
        DESTINATION ${package_folder} COMPONENT development)
