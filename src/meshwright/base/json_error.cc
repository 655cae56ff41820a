#include "meshwright/base/json_error.h"

namespace mw {
namespace {

// The texts' forms are those of nlohmann/json 3: detail/exceptions.hpp, input/parser.hpp.
void RemoveThrough(std::string_view end, std::string_view* text) {
  const size_t found = text->find(end);
  if (found != std::string_view::npos) text->remove_prefix(found + end.size());
}

bool Consume(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::string JsonErrorText(std::string_view what) {
  if (what.starts_with("[json.exception.")) RemoveThrough("] ", &what);
  std::string place;
  if (Consume("parse error at ", &what)) {
    Consume("line 1, ", &what);
    place = what.substr(0, what.find(": "));
    place += ": ";
    RemoveThrough(": ", &what);
  }
  if (what.starts_with("syntax error while parsing ")) RemoveThrough(" - ", &what);
  std::string reason(what);
  const size_t last_read = reason.find("; last read: '");
  if (last_read != std::string::npos) {
    const size_t expected = reason.rfind("'; expected ");
    const bool follows = expected != std::string::npos && expected > last_read;
    reason.erase(last_read, follows ? expected + 1 - last_read : std::string::npos);
  }
  return place + reason;
}

}  // namespace mw
