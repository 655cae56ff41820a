// Writer: StableHLO text, one statement a line.
#ifndef MESHWRIGHT_STABLEHLO_WRITER_H_
#define MESHWRIGHT_STABLEHLO_WRITER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/core/tensor_type.h"

namespace mw::stablehlo {

// "tensor<4x512xf32>", "tensor<bf16>", "tensor<3xui32>", "tensor<2xi1>".
std::string TypeText(DType dtype, const Dims& dims);
std::string TypeText(const TensorType& type);
// "(tensor<…>, tensor<…>)".
std::string TypeList(const std::vector<TensorType>& types);
// "f32", "i32", "ui32", "i1".
std::string_view ElementTypeText(DType dtype);

// "array<i64: 1, 2>", "array<i64>" when empty.
std::string I64Array(const std::vector<int64_t>& values);
// "[1, 2]".
std::string IntList(const std::vector<int64_t>& values);

// A string literal: bytes outside printable ASCII in hex.
std::string StringLiteral(std::string_view text);
// A scalar literal for `dense<…>`: exact for every value (hex bits for floats
// that are not small integers, NaN and infinities included).
std::string ScalarLiteral(DType dtype, double value);

// Collects statements. Names are %0, %1, … in order of creation, so equal
// programs give equal text.
class Writer {
 public:
  // A fresh name, "%17".
  std::string NewName();
  // A fresh channel id for a collective, from 1 on.
  int NewChannel() { return ++last_channel_; }
  // Appends one line at the current indent.
  void Line(std::string_view text);
  // The same where the op goes on in further lines.
  void OpenLine(std::string_view text);
  // `%n = <text>` with a fresh name, which it returns.
  std::string Assign(std::string_view text);
  // A splat constant of `type`.
  std::string Splat(DType dtype, const Dims& dims, double value);

  // What the ops of further lines are called in the compiler's reports, "" for nothing.
  void set_location(std::string location) { location_ = std::move(location); }
  const std::string& location() const { return location_; }

  void Indent() { indent_ += 2; }
  void Dedent() { indent_ -= 2; }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string location_;
  int indent_ = 0;
  int next_name_ = 0;
  int last_channel_ = 0;
};

// A call of `target` without side effects.
struct CustomCallText {
  std::string target;
  std::vector<std::string> operands;
  std::vector<TensorType> operand_types;
  std::vector<TensorType> result_types;
  // "backend_config = …, api_version = 4 : i32".
  std::string attributes;
  // Each buffer's dims from the fastest to the slowest in memory; row-major where there is none.
  std::vector<std::vector<int64_t>> operand_orders = {};
  std::vector<std::vector<int64_t>> result_orders = {};
  // The operand whose buffer each result takes over, or -1; empty where none does.
  std::vector<int> aliases = {};
};

// Appends it and returns the names of its results.
std::vector<std::string> CustomCall(Writer* writer, const CustomCallText& call);

}  // namespace mw::stablehlo

#endif  // MESHWRIGHT_STABLEHLO_WRITER_H_
