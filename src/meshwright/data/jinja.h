// The subset of Jinja2 that chat templates use, rendered as transformers does.
#ifndef MESHWRIGHT_DATA_JINJA_H_
#define MESHWRIGHT_DATA_JINJA_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::data {

// A half-open range of bytes of a text.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

namespace jinja {

struct Block;  // The parsed template (jinja_ast.h).

// Bounds that keep a hostile template from running away.
struct RenderLimits {
  int64_t max_steps = 20'000'000;        // Statements and expressions evaluated.
  int64_t max_bytes = int64_t{1} << 30;  // Bytes of all strings and lists made.
};

struct RenderOptions {
  RenderLimits limits;
  // What strftime_now() formats; absent = the current local time.
  std::optional<std::tm> now;
};

// The bytes one iteration of a `for` over elements of `messages` wrote.
struct MessageSpan {
  size_t message = 0;
  ByteSpan bytes;
};

struct RenderResult {
  std::string text;
  // What `{% generation %}` blocks wrote, in order.
  std::vector<ByteSpan> generation_spans;
  // What loops over elements of the variable `messages` wrote, in order; nested
  // loops over the same elements are reported by the outer one only.
  std::vector<MessageSpan> message_spans;
};

// A parsed template. Copies share the syntax tree; rendering is thread-safe.
//
// Whitespace handling is that of transformers: trim_blocks and lstrip_blocks on,
// one trailing newline dropped, lenient undefined variables, `raise_exception`,
// `strftime_now`, loop controls and `{% generation %}` blocks.
// Errors: InvalidArgument naming the line and what was not understood; limits
// give ResourceExhausted.
class Template {
 public:
  static absl::StatusOr<Template> Parse(std::string_view source);

  // Renders with `variables` (a JSON object) as the global names.
  absl::StatusOr<RenderResult> Render(const nlohmann::ordered_json& variables,
                                      const RenderOptions& options = {}) const;

  // True when the source has a `{% generation %}` block.
  bool has_generation_blocks() const { return has_generation_blocks_; }

 private:
  std::shared_ptr<const Block> root_;
  bool has_generation_blocks_ = false;
};

}  // namespace jinja
}  // namespace mw::data

#endif  // MESHWRIGHT_DATA_JINJA_H_
