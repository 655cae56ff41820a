// What a JSON library says of broken text, as part of a sentence of ours.
#ifndef MESHWRIGHT_BASE_JSON_ERROR_H_
#define MESHWRIGHT_BASE_JSON_ERROR_H_

#include <string>
#include <string_view>

namespace mw {

// `what` of an nlohmann::json exception without its error number, the parser's inner
// states and the text it has read, which may be long or no UTF-8. With the place for a
// parse error: "line 3, column 5: unexpected ']'"; without the line when that is the first.
std::string JsonErrorText(std::string_view what);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_JSON_ERROR_H_
