#ifndef MESHWRIGHT_BASE_XML_TEXT_H_
#define MESHWRIGHT_BASE_XML_TEXT_H_

#include <string>
#include <string_view>

namespace mw {

// Text as it stands in HTML and SVG, between tags or in a quoted attribute.
inline std::string XmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace mw

#endif  // MESHWRIGHT_BASE_XML_TEXT_H_
