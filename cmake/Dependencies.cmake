# Third-party libraries: Debian packages (scripts/debian_packages.txt), and
# headers from the pinned wheels that `./dev setup` unpacks into MW_DEPS_DIR.
find_package(absl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG QUIET)
find_program(MW_GRPC_CPP_PLUGIN grpc_cpp_plugin)
if(NOT gRPC_FOUND OR NOT MW_GRPC_CPP_PLUGIN)
  message(FATAL_ERROR "gRPC for C++ is missing, which `meshwright serve` needs: "
    "run ./dev setup, or install libgrpc++-dev and protobuf-compiler-grpc")
endif()
# Of re2, which gRPC links, pkg-config says -pthread, with which GCC takes no precompiled header
# that was made without.
get_target_property(options re2::re2 INTERFACE_COMPILE_OPTIONS)
if(options)
  list(REMOVE_ITEM options -pthread)
  set_target_properties(re2::re2 PROPERTIES INTERFACE_COMPILE_OPTIONS "${options}")
endif()
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(Threads REQUIRED)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
add_library(PCRE2::8 ALIAS PkgConfig::PCRE2)
# Not by pkg-config: its -pthread is another preprocessor than the precompiled headers have.
find_path(RE2_INCLUDE_DIR re2/re2.h REQUIRED)
find_library(RE2_LIBRARY re2 REQUIRED)
add_library(RE2::re2 INTERFACE IMPORTED)
target_link_libraries(RE2::re2 INTERFACE ${RE2_LIBRARY})
pkg_check_modules(HTTPLIB IMPORTED_TARGET cpp-httplib)
if(NOT HTTPLIB_FOUND)
  message(FATAL_ERROR "cpp-httplib is missing, which `meshwright serve --metrics-listen` needs: "
    "run ./dev setup, or install libcpp-httplib-dev")
endif()
# oneDNN asks OpenMP for its number of threads, and so do we. By the library alone: -fopenmp is
# another preprocessor than the precompiled headers have.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_library(GOMP_LIBRARY gomp HINTS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
add_library(OneDnn INTERFACE)
target_link_libraries(OneDnn INTERFACE dnnl gomp)
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
find_library(HWY_LIBRARY hwy REQUIRED)
add_library(Highway INTERFACE)
target_link_libraries(Highway INTERFACE hwy)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

set(MW_DEPS_DIR "${CMAKE_SOURCE_DIR}/.deps" CACHE PATH "Where ./dev setup unpacks the pinned wheels")
set(MW_PJRT_INCLUDE "${MW_DEPS_DIR}/xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt/include")
set(MW_XLA_FFI_INCLUDE "${MW_DEPS_DIR}/jaxlib/jaxlib/include")
foreach(header "${MW_PJRT_INCLUDE}/pjrt_c_api.h" "${MW_XLA_FFI_INCLUDE}/xla/ffi/api/ffi.h")
  if(NOT EXISTS "${header}")
    message(FATAL_ERROR "${header} is missing: run ./dev setup first")
  endif()
endforeach()
add_library(PjrtHeader INTERFACE)
target_include_directories(PjrtHeader SYSTEM INTERFACE
  $<BUILD_INTERFACE:${MW_PJRT_INCLUDE}>)
add_library(XlaFfiHeader INTERFACE)
target_include_directories(XlaFfiHeader SYSTEM INTERFACE
  $<BUILD_INTERFACE:${MW_XLA_FFI_INCLUDE}>)

# What tests learn about where they are.
set(MW_TEST_DEFINITIONS MW_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MW_DEPS_DIR="${MW_DEPS_DIR}")

# proto/*.proto -> mw_proto
file(GLOB MW_PROTOS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
add_library(mw_proto STATIC ${MW_PROTOS})
protobuf_generate(TARGET mw_proto LANGUAGE cpp IMPORT_DIRS ${CMAKE_SOURCE_DIR}/proto)
target_include_directories(mw_proto SYSTEM PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}>)
target_link_libraries(mw_proto PUBLIC protobuf::libprotobuf)

# proto/meshwright/v1/trainer.proto, our own interface -> mw_trainer_proto
add_library(mw_trainer_proto STATIC ${CMAKE_SOURCE_DIR}/proto/meshwright/v1/trainer.proto)
protobuf_generate(TARGET mw_trainer_proto LANGUAGE cpp IMPORT_DIRS ${CMAKE_SOURCE_DIR}/proto)
protobuf_generate(TARGET mw_trainer_proto LANGUAGE grpc IMPORT_DIRS ${CMAKE_SOURCE_DIR}/proto
  GENERATE_EXTENSIONS .grpc.pb.h .grpc.pb.cc PLUGIN protoc-gen-grpc=${MW_GRPC_CPP_PLUGIN})
target_include_directories(mw_trainer_proto SYSTEM PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}>)
target_link_libraries(mw_trainer_proto PUBLIC protobuf::libprotobuf gRPC::grpc++)
