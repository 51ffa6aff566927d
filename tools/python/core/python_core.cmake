# The compiled half of the Python package: kvsim._core, which is the kvsim command of the wheel, too. pip finds nanobind and
# names the interpreter (pyproject.toml).
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE nanobind_missing)
if(nanobind_missing)
  message(FATAL_ERROR "nanobind not found for ${Python_EXECUTABLE}. pip install . fetches it.")
endif()
find_package(nanobind CONFIG REQUIRED)

file(GLOB core_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/python/core/*.cpp)
# One module for all interpreters from 3.12 on (STABLE_ABI), one of its own for older ones.
nanobind_add_module(kvsim_core STABLE_ABI NB_STATIC NB_SUPPRESS_WARNINGS ${core_sources}
                    ${CMAKE_SOURCE_DIR}/tools/processor.cpp)
set_target_properties(kvsim_core PROPERTIES OUTPUT_NAME _core UNITY_BUILD ${KVSIM_UNITY} UNITY_BUILD_BATCH_SIZE 20)
target_link_libraries(kvsim_core PRIVATE kvsim_commands)
target_compile_options(kvsim_core PRIVATE ${light})
install(TARGETS kvsim_core LIBRARY DESTINATION kvsim COMPONENT python)
# Types for editors and checkers.
nanobind_add_stub(kvsim_core_stub MODULE _core OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/_core.pyi
                  PYTHON_PATH $<TARGET_FILE_DIR:kvsim_core> DEPENDS kvsim_core)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_core.pyi DESTINATION kvsim COMPONENT python)
# A model to try things on, so that the package needs no clone beside it (kvsim.sample_model).
install(DIRECTORY ${CMAKE_SOURCE_DIR}/traces/sample/model/ DESTINATION kvsim/sample_model COMPONENT python)
