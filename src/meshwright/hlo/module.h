// Module: XLA's text of a program, as far as loops and calls need it.
#ifndef MESHWRIGHT_HLO_MODULE_H_
#define MESHWRIGHT_HLO_MODULE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mw::hlo {

struct Instruction {
  std::string name;
  std::string type;
  std::string opcode;
  std::string rest;  // operands and attributes
  bool is_root = false;
};

using Computation = std::vector<Instruction>;

struct Module {
  std::map<std::string, Computation, std::less<>> computations;
  std::string entry;
};

// Lines that are no instructions are passed over.
Module ParseModule(std::string_view hlo);

// The trips that a while instruction of `around` states, or else counts: a value of its
// state that starts at a constant, grows by a constant and is compared (LT) with one.
std::optional<int64_t> TripCount(const Module& module, const Computation& around,
                                 const Instruction& loop);

// What follows "key=" in an instruction's `rest`, empty without it.
std::string_view Attribute(std::string_view text, std::string_view key);
// The names after "%" up to the end of a name or, for a list, of its braces.
std::vector<std::string> Names(std::string_view text);

// Readers of the start of `text`, which they cut off; false where something else is there.
bool TakeInt(std::string_view& text, int64_t* value);
bool Take(std::string_view& text, std::string_view prefix);
// "[2,3]" or "(1,0)".
bool TakeInts(std::string_view& text, char open, char close, std::vector<int64_t>* values);

}  // namespace mw::hlo

#endif  // MESHWRIGHT_HLO_MODULE_H_
