# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(MW_WERROR "Treat warnings as errors" ON)
set(MW_SANITIZE "" CACHE STRING "Sanitizers to instrument our code with, e.g. address,undefined")

add_library(mw_flags INTERFACE)
target_compile_options(mw_flags INTERFACE -Wall -Wextra)
if(MW_WERROR)
  target_compile_options(mw_flags INTERFACE -Werror)
endif()
if(MW_SANITIZE)
  target_compile_options(mw_flags INTERFACE -fsanitize=${MW_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(mw_flags INTERFACE -fsanitize=${MW_SANITIZE})
endif()

# Tests are compiled more often than they are run: their own code need not be fast.
set(MW_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # What ccache asks for where there are precompiled headers. Where the checkout lies is no part
  # of what is compiled, so that several of them share what one has built.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
    ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()
