# Builds the *.yaml of a folder into a layer, so that the program runs from anywhere.
#
# mw_embed_yaml(LAYER DIR HEADER TYPE FUNCTION)
#
# DIR is relative to the source tree. HEADER, of the layer, declares the struct TYPE of
# two `const char*`, name and text, and `std::span<const TYPE> FUNCTION()` in namespace
# mw::LAYER; this defines FUNCTION.
function(mw_embed_yaml LAYER DIR HEADER TYPE FUNCTION)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${DIR}/*.yaml)
  set(script ${CMAKE_SOURCE_DIR}/cmake/EmbedYaml.cmake)
  set(output ${CMAKE_BINARY_DIR}/embedded_${LAYER}.cc)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DDIR=${DIR}
      -DLAYER=${LAYER} -DHEADER=${HEADER} -DTYPE=${TYPE} -DFUNCTION=${FUNCTION} -P ${script}
    DEPENDS ${files} ${script})
  target_sources(mw_${LAYER} PRIVATE ${output})
endfunction()

# What the custom command runs.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB files ${SOURCE_DIR}/${DIR}/*.yaml)
  list(SORT files)
  set(entries "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "\\.yaml$" "" name ${name})
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"yaml(${text})yaml\"},\n")
  endforeach()
  file(WRITE ${OUTPUT} "// Generated from ${DIR}/*.yaml by cmake/EmbedYaml.cmake.
#include \"${HEADER}\"

namespace mw::${LAYER} {

std::span<const ${TYPE}> ${FUNCTION}() {
  static constexpr ${TYPE} kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace mw::${LAYER}
")
endif()
