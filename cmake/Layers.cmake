# One static library per folder of src/meshwright, and one test binary per
# folder from its *_test.cc files.
set(MW_ALL_LAYERS "" CACHE INTERNAL "")

# mw_layer(NAME [DEPS layer…] [LIBS target…] [TESTONLY])
function(mw_layer NAME)
  cmake_parse_arguments(ARG "TESTONLY" "" "DEPS;LIBS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/meshwright/${NAME})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND mw_ OUTPUT_VARIABLE deps)
  set(target mw_${NAME})
  if(sources)
    add_library(${target} STATIC ${sources} ${headers})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE mw_flags)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_SOURCE_DIR}/src)
  # A layer sees what it includes; the archive order of static libraries needs
  # the closure, which CMake derives from these edges.
  target_link_libraries(${target} ${scope} ${deps} ${ARG_LIBS} absl::status absl::statusor
    absl::strings absl::str_format absl::span absl::flat_hash_map nlohmann_json::nlohmann_json
    fmt::fmt yaml-cpp Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY MW_LAYERS ${NAME})
endfunction()

# Adds <layer>_test for every layer that has *_test.cc files. Labels come from
# the file name: foo_mesh_test.cc is `mesh`, foo_parity_test.cc is `parity`,
# foo_slow_test.cc is `slow`, anything else `unit`.
function(mw_layer_tests)
  get_property(layers GLOBAL PROPERTY MW_LAYERS)
  foreach(layer ${layers})
    set(dir ${CMAKE_SOURCE_DIR}/src/meshwright/${layer})
    file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*_test.cc)
    foreach(label unit mesh parity slow)
      set(files ${all})
      if(label STREQUAL unit)
        list(FILTER files EXCLUDE REGEX "_(mesh|parity|slow)_test\\.cc$")
        set(target ${layer}_test)
      else()
        list(FILTER files INCLUDE REGEX "_${label}_test\\.cc$")
        set(target ${layer}_${label}_test)
      endif()
      if(files)
        add_executable(${target} ${files})
        target_link_libraries(${target} PRIVATE mw_flags mw_${layer} mw_testing GTest::gmock GTest::gtest_main)
        target_compile_definitions(${target} PRIVATE MW_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MW_DEPS_DIR="${MW_DEPS_DIR}")
        add_test(NAME ${target} COMMAND ${target})
        set_tests_properties(${target} PROPERTIES LABELS ${label}
          ENVIRONMENT "MW_PLUGIN_PATH=${MW_DEPS_DIR}" TIMEOUT 1200)
      endif()
    endforeach()
  endforeach()
endfunction()
