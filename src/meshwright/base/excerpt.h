// Text of users, of whatever length, as a message repeats it.
#ifndef MESHWRIGHT_BASE_EXCERPT_H_
#define MESHWRIGHT_BASE_EXCERPT_H_

#include <string>
#include <string_view>

namespace mw {

inline constexpr size_t kExcerptBytes = 120;

// `text`, or of a longer one its first kExcerptBytes, cut between UTF-8 characters, and how
// long it is: `aaaa... (1048576 bytes)`.
std::string Excerpt(std::string_view text);

// A whole message of at most `max_bytes` and a few words: what is left out of a longer one is
// its middle, since both ends tell most.
std::string Abridged(std::string_view message, size_t max_bytes);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_EXCERPT_H_
