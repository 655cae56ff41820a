#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "meshwright/core/philox.h"
#include "meshwright/graph_testing/evaluator_ops.h"

namespace mw::evaluation {

int64_t Wrap(DType dtype, int64_t v) {
  switch (dtype) {
    case DType::kPred:
      return v & 1;
    case DType::kS8:
      return static_cast<int8_t>(v);
    case DType::kU8:
      return static_cast<uint8_t>(v);
    case DType::kS32:
      return static_cast<int32_t>(v);
    case DType::kU32:
      return static_cast<uint32_t>(v);
    default:
      return v;
  }
}

namespace {

using U = uint64_t;

constexpr int64_t Signed(U v) { return std::bit_cast<int64_t>(v); }
constexpr U Bits(int64_t v) { return std::bit_cast<U>(v); }

// y = F(x) of floats, G(x) of integers.
template <auto F, auto G = nullptr>
void Unary(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const DType dtype = node.types()[0].dtype;
  if constexpr (!std::is_same_v<decltype(F), std::nullptr_t>) {
    for (size_t i = 0; i < out[0].floats.size(); ++i) out[0].floats[i] = F(in[0]->floats[i]);
  }
  if constexpr (!std::is_same_v<decltype(G), std::nullptr_t>) {
    for (size_t i = 0; i < out[0].integers.size(); ++i) {
      out[0].integers[i] = Wrap(dtype, G(in[0]->integers[i]));
    }
  }
}

// y = F(a, b) of floats, G(a, b) of integers, but H(a, b) of u64 where they differ.
template <auto F, auto G = nullptr, auto H = nullptr>
void Binary(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const DType dtype = node.types()[0].dtype;
  if constexpr (!std::is_same_v<decltype(F), std::nullptr_t>) {
    const double* a = in[0]->floats.data();
    const double* b = in[1]->floats.data();
    for (size_t i = 0; i < out[0].floats.size(); ++i) out[0].floats[i] = F(a[i], b[i]);
  }
  if constexpr (!std::is_same_v<decltype(G), std::nullptr_t>) {
    const int64_t* a = in[0]->integers.data();
    const int64_t* b = in[1]->integers.data();
    std::vector<int64_t>& y = out[0].integers;
    if constexpr (!std::is_same_v<decltype(H), std::nullptr_t>) {
      if (dtype == DType::kU64) {
        for (size_t i = 0; i < y.size(); ++i) y[i] = Signed(H(Bits(a[i]), Bits(b[i])));
        return;
      }
    }
    for (size_t i = 0; i < y.size(); ++i) y[i] = Wrap(dtype, G(a[i], b[i]));
  }
}

// What XLA gives where StableHLO leaves it open: x / 0 is all ones, x % 0 is x.
int64_t Quotient(int64_t a, int64_t b) {
  if (b == 0) return -1;
  return b == -1 ? Signed(-Bits(a)) : a / b;
}
int64_t Remainder(int64_t a, int64_t b) {
  if (b == 0) return a;
  return b == -1 ? 0 : a % b;
}

// By squaring, modulo 2^64. A negative exponent rounds toward zero.
int64_t Power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  U result = 1;
  for (U base = Bits(a); b > 0; b >>= 1, base *= base) {
    if ((b & 1) != 0) result *= base;
  }
  return Signed(result);
}

double Larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : a < b ? b : a; }
double Smaller(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : b < a ? b : a; }

template <typename T>
bool Holds(std::string_view direction, T a, T b) {
  if (direction == "EQ") return a == b;
  if (direction == "NE") return a != b;
  if (direction == "LT") return a < b;
  if (direction == "LE") return a <= b;
  if (direction == "GT") return a > b;
  return a >= b;
}

void Compare(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const std::string& direction = node.attrs().String("direction");
  const DType dtype = node.operand(0).dtype();
  std::vector<int64_t>& y = out[0].integers;
  for (size_t i = 0; i < y.size(); ++i) {
    if (IsFloat(dtype)) {
      y[i] = Holds(direction, in[0]->floats[i], in[1]->floats[i]);
    } else if (dtype == DType::kU64) {
      y[i] = Holds(direction, Bits(in[0]->integers[i]), Bits(in[1]->integers[i]));
    } else {
      y[i] = Holds(direction, in[0]->integers[i], in[1]->integers[i]);
    }
  }
}

void Select(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const bool scalar = node.operand(0).rank() == 0;
  const auto choose = [&](const auto& on_true, const auto& on_false, auto& y) {
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = in[0]->integers[scalar ? 0 : i] != 0 ? on_true[i] : on_false[i];
    }
  };
  choose(in[1]->floats, in[2]->floats, out[0].floats);
  choose(in[1]->integers, in[2]->integers, out[0].integers);
}

// Toward zero, what does not fit to the nearest that does, NaN to 0.
int64_t Truncated(double v, DType dtype) {
  if (std::isnan(v)) return 0;
  if (dtype == DType::kPred) return v != 0 ? 1 : 0;
  const auto limited = [&]<typename T>(T) {
    const auto low = static_cast<double>(std::numeric_limits<T>::min());
    const auto high = static_cast<double>(std::numeric_limits<T>::max());
    if (v <= low) return static_cast<int64_t>(std::numeric_limits<T>::min());
    if (v >= high) return static_cast<int64_t>(std::numeric_limits<T>::max());
    return static_cast<int64_t>(static_cast<T>(v));
  };
  switch (dtype) {
    case DType::kS8:
      return limited(int8_t{});
    case DType::kU8:
      return limited(uint8_t{});
    case DType::kS32:
      return limited(int32_t{});
    case DType::kU32:
      return limited(uint32_t{});
    case DType::kS64:
      return limited(int64_t{});
    default:
      return limited(U{});
  }
}

// Between float types it does not come here: that is the identity.
void Convert(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const DType from = node.operand(0).dtype();
  const DType to = node.types()[0].dtype;
  if (IsFloat(from)) {
    for (size_t i = 0; i < out[0].integers.size(); ++i) {
      out[0].integers[i] = Truncated(in[0]->floats[i], to);
    }
    return;
  }
  const std::vector<int64_t>& x = in[0]->integers;
  for (size_t i = 0; i < x.size(); ++i) {
    if (IsFloat(to)) {
      out[0].floats[i] =
          from == DType::kU64 ? static_cast<double>(Bits(x[i])) : static_cast<double>(x[i]);
    } else {
      out[0].integers[i] = to == DType::kPred ? (x[i] != 0 ? 1 : 0) : Wrap(to, x[i]);
    }
  }
}

void IsFinite(const Node&, const Operands& in, std::vector<ExactTensor>& out) {
  for (size_t i = 0; i < out[0].integers.size(); ++i) {
    out[0].integers[i] = std::isfinite(in[0]->floats[i]) ? 1 : 0;
  }
}

// Bits that leave the width are gone; so is everything once `b` reaches it.
template <bool kLeft>
void Shift(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  const DType dtype = node.types()[0].dtype;
  const U width = 8 * ByteSize(dtype);
  const U mask = width == 64 ? ~U{0} : (U{1} << width) - 1;
  for (size_t i = 0; i < out[0].integers.size(); ++i) {
    const U a = Bits(in[0]->integers[i]) & mask;
    const U b = Bits(in[1]->integers[i]) & mask;
    const U shifted = b >= width ? 0 : kLeft ? a << b : a >> b;
    out[0].integers[i] = Wrap(dtype, Signed(shifted));
  }
}

void Not(const Node& node, const Operands& in, std::vector<ExactTensor>& out) {
  for (size_t i = 0; i < out[0].integers.size(); ++i) {
    out[0].integers[i] = Wrap(node.types()[0].dtype, ~in[0]->integers[i]);
  }
}

void Philox(const Node&, const Operands& in, std::vector<ExactTensor>& out) {
  const auto word = [&](int operand, size_t i) {
    return static_cast<uint32_t>(in[operand]->integers[i]);
  };
  for (size_t i = 0; i < out[0].integers.size(); ++i) {
    const PhiloxCounter words =
        Philox4x32({word(0, i), word(1, i), word(2, i), word(3, i)}, {word(4, i), word(5, i)});
    for (int w = 0; w < 4; ++w) out[w].integers[i] = words[w];
  }
}

int64_t SignOfInteger(int64_t x) { return x == 0 ? 0 : x > 0 ? 1 : -1; }

double Sign(double x) { return std::isnan(x) || x == 0 ? x : x > 0 ? 1 : -1; }

}  // namespace

std::function<double(double, double)> FloatReduction(std::string_view kind) {
  if (kind == "add") return [](double a, double b) { return a + b; };
  if (kind == "mul") return [](double a, double b) { return a * b; };
  MW_CHECK_MSG(kind == "max" || kind == "min", std::string(kind));
  return kind == "max" ? Larger : Smaller;
}

std::function<int64_t(int64_t, int64_t)> IntegerReduction(std::string_view kind, DType dtype) {
  if (kind == "add") {
    return [dtype](int64_t a, int64_t b) { return Wrap(dtype, Signed(Bits(a) + Bits(b))); };
  }
  if (kind == "mul") {
    return [dtype](int64_t a, int64_t b) { return Wrap(dtype, Signed(Bits(a) * Bits(b))); };
  }
  if (kind == "and") return [](int64_t a, int64_t b) { return a & b; };
  if (kind == "or") return [](int64_t a, int64_t b) { return a | b; };
  const bool max = kind == "max";
  MW_CHECK_MSG(max || kind == "min", std::string(kind));
  const bool bits = dtype == DType::kU64;
  return [max, bits](int64_t a, int64_t b) {
    const bool less = bits ? Bits(a) < Bits(b) : a < b;
    return less == max ? b : a;
  };
}

void AddElementwiseOps(LocalOps& ops) {
  ops["abs"] = Unary<[](double x) { return std::abs(x); },
                     [](int64_t x) { return x < 0 ? Signed(-Bits(x)) : x; }>;
  ops["neg"] = Unary<[](double x) { return -x; }, [](int64_t x) { return Signed(-Bits(x)); }>;
  ops["sign"] = Unary<Sign, SignOfInteger>;
  ops["cos"] = Unary<[](double x) { return std::cos(x); }>;
  ops["sin"] = Unary<[](double x) { return std::sin(x); }>;
  ops["exp"] = Unary<[](double x) { return std::exp(x); }>;
  ops["expm1"] = Unary<[](double x) { return std::expm1(x); }>;
  ops["floor"] = Unary<[](double x) { return std::floor(x); }>;
  ops["log"] = Unary<[](double x) { return std::log(x); }>;
  ops["log1p"] = Unary<[](double x) { return std::log1p(x); }>;
  ops["logistic"] = Unary<[](double x) { return 1 / (1 + std::exp(-x)); }>;
  ops["rsqrt"] = Unary<[](double x) { return 1 / std::sqrt(x); }>;
  ops["sqrt"] = Unary<[](double x) { return std::sqrt(x); }>;
  ops["tanh"] = Unary<[](double x) { return std::tanh(x); }>;
  ops["add"] = Binary<[](double a, double b) { return a + b; },
                      [](int64_t a, int64_t b) { return Signed(Bits(a) + Bits(b)); }>;
  ops["sub"] = Binary<[](double a, double b) { return a - b; },
                      [](int64_t a, int64_t b) { return Signed(Bits(a) - Bits(b)); }>;
  ops["mul"] = Binary<[](double a, double b) { return a * b; },
                      [](int64_t a, int64_t b) { return Signed(Bits(a) * Bits(b)); }>;
  ops["div"] = Binary<[](double a, double b) { return a / b; }, Quotient,
                      [](U a, U b) { return b == 0 ? ~U{0} : a / b; }>;
  ops["rem"] = Binary<[](double a, double b) { return std::fmod(a, b); }, Remainder,
                      [](U a, U b) { return b == 0 ? a : a % b; }>;
  ops["max"] = Binary<Larger, [](int64_t a, int64_t b) { return a < b ? b : a; },
                      [](U a, U b) { return a < b ? b : a; }>;
  ops["min"] = Binary<Smaller, [](int64_t a, int64_t b) { return b < a ? b : a; },
                      [](U a, U b) { return b < a ? b : a; }>;
  ops["pow"] = Binary<[](double a, double b) { return std::pow(a, b); }, Power>;
  ops["and"] = Binary<nullptr, [](int64_t a, int64_t b) { return a & b; }>;
  ops["or"] = Binary<nullptr, [](int64_t a, int64_t b) { return a | b; }>;
  ops["xor"] = Binary<nullptr, [](int64_t a, int64_t b) { return a ^ b; }>;
  ops["compare"] = Compare;
  ops["convert"] = Convert;
  ops["is_finite"] = IsFinite;
  ops["not"] = Not;
  ops["philox"] = Philox;
  ops["select"] = Select;
  ops["shift_left"] = Shift<true>;
  ops["shift_right_logical"] = Shift<false>;
}

}  // namespace mw::evaluation
