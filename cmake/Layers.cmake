# One static library per folder of src/meshwright, and one test binary per
# folder and label from its *_test.cc files.

# mw_layer(NAME [DEPS layer…] [LIBS target…] [TEST_DEPS layer…] [TESTONLY])
#
# DEPS are the layers it may include, LIBS are targets of other projects,
# TEST_DEPS are layers that only its *_test.cc files may include (`testing` goes
# without saying). TESTONLY layers may use GoogleTest and link into tests only.
function(mw_layer NAME)
  cmake_parse_arguments(ARG "TESTONLY" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
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
    mw_use_pch(${target} mw_pch)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
  if(ARG_TESTONLY)
    list(APPEND ARG_LIBS GTest::gmock GTest::gtest)
    if(sources)
      target_compile_definitions(${target} PRIVATE ${MW_TEST_DEFINITIONS})
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
  # A layer sees what it includes; the archive order of static libraries needs
  # the closure, which CMake derives from these edges.
  target_link_libraries(${target} ${scope} ${deps} ${ARG_LIBS} absl::status absl::statusor
    absl::strings absl::str_format absl::span absl::flat_hash_map nlohmann_json::nlohmann_json
    fmt::fmt yaml-cpp Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY MW_LAYERS ${NAME})
  set_property(GLOBAL PROPERTY MW_TEST_DEPS_${NAME} ${ARG_TEST_DEPS})
endfunction()

# Adds <layer>_test for every layer that has *_test.cc files. Labels come from
# the file name: foo_mesh_test.cc is `mesh`, foo_parity_test.cc is `parity`,
# foo_slow_test.cc is `slow`, anything else `unit`.
function(mw_layer_tests)
  get_property(layers GLOBAL PROPERTY MW_LAYERS)
  foreach(layer ${layers})
    set(dir ${CMAKE_SOURCE_DIR}/src/meshwright/${layer})
    get_property(test_deps GLOBAL PROPERTY MW_TEST_DEPS_${layer})
    list(TRANSFORM test_deps PREPEND mw_)
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
        target_link_libraries(${target} PRIVATE mw_flags mw_${layer} ${test_deps} mw_testing
          GTest::gmock GTest::gtest_main)
        target_compile_definitions(${target} PRIVATE ${MW_TEST_DEFINITIONS})
        target_compile_options(${target} PRIVATE ${MW_TEST_OPTIONS})
        mw_use_pch(${target} mw_test_pch)
        add_test(NAME ${target} COMMAND ${target})
        # Two tests may have libtpu loaded at a time: it compiles, and there is no TPU to share.
        set(environment "MW_PLUGIN_PATH=${MW_DEPS_DIR}" "ALLOW_MULTIPLE_LIBTPU_LOAD=1")
        # XLA compiles hundreds of small programs here, most of what tests cost. The labels
        # parity and slow compile as a user's programs are compiled.
        if(label MATCHES "unit|mesh")
          list(APPEND environment "XLA_FLAGS=--xla_backend_optimization_level=0")
        endif()
        set(timeout_s 1200)
        if(label STREQUAL slow)
          set(timeout_s 21600)
        endif()
        set_tests_properties(${target} PROPERTIES LABELS ${label} ENVIRONMENT "${environment}"
          TIMEOUT ${timeout_s})
      endif()
    endforeach()
  endforeach()
endfunction()

# Adds bench_<name> for every bench/micro/<name>_bench.cc. A
# benchmark may use the layers in LAYERS; `./dev bench NAME` runs it.
function(mw_benchmarks)
  cmake_parse_arguments(ARG "" "" "LAYERS" ${ARGN})
  list(TRANSFORM ARG_LAYERS PREPEND mw_)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/micro/*_bench.cc)
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "_bench$" "" name ${name})
    add_executable(bench_${name} ${file})
    target_include_directories(bench_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(bench_${name} PRIVATE mw_flags ${ARG_LAYERS} benchmark::benchmark_main)
  endforeach()
endfunction()

# mw_script_test(NAME [LABEL label] script [argument…])
#
# Adds a CTest that runs a Python script; its label is `tools` unless said otherwise.
function(mw_script_test NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "LABEL" "")
  if(NOT ARG_LABEL)
    set(ARG_LABEL tools)
  endif()
  add_test(NAME ${NAME} COMMAND Python3::Interpreter ${ARG_UNPARSED_ARGUMENTS}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 1200
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;MW_PLUGIN_PATH=${MW_DEPS_DIR}")
endfunction()
