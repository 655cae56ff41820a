# What `cmake --install` puts where: the program, and the library with the headers that programs
# of one's own include, as the CMake package Meshwright: the targets Meshwright::meshwright,
# Meshwright::malloc (the program's malloc) and, of its component `service`, Meshwright::service.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# mw_include_closure(OUT ROOT…): headers below src/ that the roots include, themselves among them.
function(mw_include_closure OUT)
  set(todo ${ARGN})
  set(seen "")
  while(todo)
    list(POP_FRONT todo header)
    if(header IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${header})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${header})
    file(STRINGS ${CMAKE_SOURCE_DIR}/src/${header} lines REGEX "^#include \"meshwright/")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      list(APPEND todo ${included})
    endforeach()
  endwhile()
  list(SORT seen)
  set(${OUT} ${seen} PARENT_SCOPE)
endfunction()

# The public headers; what they include comes with them.
set(MW_PUBLIC_HEADERS
  meshwright/train/trainer.h meshwright/train/engine.h meshwright/train/loss.h
  meshwright/service/trainer_worker.h
  meshwright/base/status_macros.h)
file(GLOB builders RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/src/meshwright/ops/*.h ${CMAKE_SOURCE_DIR}/src/meshwright/nn/*.h)
list(FILTER builders EXCLUDE REGEX "_for_test\\.h$")
mw_include_closure(headers ${MW_PUBLIC_HEADERS} ${builders})
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

# The layers that training and serving link, and what only they see.
set(MW_INSTALLED_LAYERS base core graph stablehlo mosaic ops autodiff spmd compile runtime kernels
  io data nn
  models train service)
list(TRANSFORM MW_INSTALLED_LAYERS PREPEND mw_ OUTPUT_VARIABLE targets)
add_library(mw_meshwright INTERFACE)
target_link_libraries(mw_meshwright INTERFACE mw_train)
set_target_properties(mw_meshwright PROPERTIES EXPORT_NAME meshwright)
add_library(mw_meshwright_service INTERFACE)
target_link_libraries(mw_meshwright_service INTERFACE mw_meshwright mw_service)
set_target_properties(mw_meshwright_service PROPERTIES EXPORT_NAME service)
set_target_properties(mw_malloc PROPERTIES EXPORT_NAME malloc)
install(TARGETS mw_meshwright mw_meshwright_service mw_malloc ${targets} mw_proto mw_trainer_proto mw_flags
  PjrtHeader XlaFfiHeader OneDnn Highway EXPORT MeshwrightTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/meshwright
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT MeshwrightTargets NAMESPACE Meshwright::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Meshwright)
configure_package_config_file(cmake/MeshwrightConfig.cmake.in
  ${CMAKE_BINARY_DIR}/MeshwrightConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Meshwright)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/MeshwrightConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/MeshwrightConfig.cmake
  ${CMAKE_BINARY_DIR}/MeshwrightConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Meshwright)
install(TARGETS meshwright RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
