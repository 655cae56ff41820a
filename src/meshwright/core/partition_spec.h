// PartitionSpec: how a tensor lies on a named device mesh.
#ifndef MESHWRIGHT_CORE_PARTITION_SPEC_H_
#define MESHWRIGHT_CORE_PARTITION_SPEC_H_

#include <cstddef>
#include <string>
#include <vector>

namespace mw {

// Per dimension an ordered list of mesh axes that shard it, major to minor; plus
// the axes over which each device holds only a partial sum (`unreduced`), and a
// tag for program inputs whose cotangent leaves the program unreduced
// (`reduced`). An axis appears at most once in the whole spec. Over any axis
// that is not named the value is replicated: every device holds the same bits.
//
// The empty spec (no dims, no axes) means replicated whatever the rank; it is
// the only spec on a single device.
struct PartitionSpec {
  std::vector<std::vector<std::string>> dims;
  std::vector<std::string> unreduced;  // sorted
  std::vector<std::string> reduced;    // sorted

  bool IsReplicated() const;

  // "{}" for the empty spec, else e.g. "{[data,fsdp],[],[tensor]; unreduced: context}".
  std::string ToString() const;

  // Equality up to trailing empty dims, so that {} equals {[],[]}.
  friend bool operator==(const PartitionSpec& a, const PartitionSpec& b);
};

// Of tensors stacked along a new first dim, which stays whole.
PartitionSpec StackedSpec(PartitionSpec slice);

}  // namespace mw

#endif  // MESHWRIGHT_CORE_PARTITION_SPEC_H_
