# Writes the .cc that builds configs/models/*.yaml into the program.
#
#   cmake -DOUTPUT=FILE -DDIR=configs/models -P EmbedPresets.cmake
file(GLOB files ${DIR}/*.yaml)
list(SORT files)
set(entries "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE "\\.yaml$" "" name ${name})
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"yaml(${text})yaml\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from configs/models/*.yaml by cmake/EmbedPresets.cmake.
#include \"meshwright/models/presets.h\"

namespace mw::models {

std::span<const EmbeddedPreset> EmbeddedPresets() {
  static constexpr EmbeddedPreset kPresets[] = {
${entries}  };
  return kPresets;
}

}  // namespace mw::models
")
