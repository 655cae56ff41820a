# Precompiled headers of other projects: parsing <absl/status/status.h> or
# <gmock/gmock.h> again costs more than most of our files do.
#
# Sources include what they use all the same: `./dev lint` and the sanitizer presets do
# without (MW_PCH=OFF) and so show an include that is missing.
option(MW_PCH "Precompile the headers of other projects that most files include" ON)
if(MW_PCH)
  # In a precompiled header GCC 12 forgets which code is the library's, and reports what it
  # believes of std::string there (PR 105651). Presets without one keep these warnings.
  target_compile_options(mw_flags INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
    -Wno-stringop-overread)
endif()

# What goes in: headers that many files include. <nlohmann/json.hpp> stays out: it
# instantiates its parser in every file that sees it.
set(MW_PCH_HEADERS <absl/status/status.h> <absl/status/statusor.h> <algorithm> <cmath> <cstdint>
  <fmt/format.h> <fmt/ranges.h> <functional> <map> <memory> <optional> <string> <string_view>
  <utility> <vector>)
set(MW_PCH_LIBS absl::status absl::statusor fmt::fmt Threads::Threads)

# mw_pch_target(NAME HEADERS header… LIBS target… [OPTIONS option…])
#
# Adds the target that owns a precompiled header; all its users are compiled with the same
# options.
function(mw_pch_target NAME)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "HEADERS;LIBS;OPTIONS")
  if(MW_PCH)
    file(CONFIGURE OUTPUT ${NAME}.cc CONTENT "")
    add_library(${NAME} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.cc)
    target_link_libraries(${NAME} PRIVATE mw_flags ${ARG_LIBS})
    target_compile_options(${NAME} PRIVATE ${ARG_OPTIONS})
    target_precompile_headers(${NAME} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()

# mw_use_pch(TARGET PCH_TARGET)
function(mw_use_pch TARGET PCH_TARGET)
  if(MW_PCH)
    target_precompile_headers(${TARGET} REUSE_FROM ${PCH_TARGET})
  endif()
endfunction()

mw_pch_target(mw_pch HEADERS ${MW_PCH_HEADERS} LIBS ${MW_PCH_LIBS})
mw_pch_target(mw_test_pch HEADERS ${MW_PCH_HEADERS} <gmock/gmock.h> <gtest/gtest.h>
  LIBS ${MW_PCH_LIBS} GTest::gmock GTest::gtest OPTIONS ${MW_TEST_OPTIONS})
