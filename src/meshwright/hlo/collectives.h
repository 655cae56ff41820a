// Collectives: the collectives of a compiled program, read from XLA's text dump.
#ifndef MESHWRIGHT_HLO_COLLECTIVES_H_
#define MESHWRIGHT_HLO_COLLECTIVES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace mw::hlo {

struct Collective {
  std::string name;  // of the instruction
  std::string kind;  // as HLO writes it: "all-reduce", "all-gather", …
  std::vector<std::vector<int64_t>> groups;
  std::vector<std::string> dtypes;  // of its results, "f32"; several where XLA combined
  int64_t result_bytes = 0;         // of all results
  int64_t trips = 1;                // the product of the loops around it
};

// Sent by one device in one execution, in bytes, by the same ring algorithms as spmd::CensusRow
// counts with; 0 for kinds that it does not have.
int64_t SentBytes(const Collective& collective);

// The collectives that one execution of the entry computation of `hlo`, the text of a
// compiled module, runs, in the order of the text. Of an asynchronous pair the start
// counts. A computation that is called from several places counts once for each.
//
// Errors: InvalidArgument, naming the instruction, for groups in a form that is not known
// and for a loop with a collective in it that neither states its trip count nor counts from
// one constant up to another.
absl::StatusOr<std::vector<Collective>> ParseCollectives(std::string_view hlo);

// [2,2]<=[4] and [2,2]<=[2,2]T(1,0), the compact form, {{0,1},{2,3}}, and
// mesh['a'=2,'b'=2] {'b'}, the devices of a mesh that differ along the axes in braces alone.
absl::StatusOr<std::vector<std::vector<int64_t>>> ParseReplicaGroups(std::string_view text);

}  // namespace mw::hlo

#endif  // MESHWRIGHT_HLO_COLLECTIVES_H_
