#include "meshwright/ops/op_def.h"

namespace mw::ops {

#define MW_OP(name) const OpDef& name##Op();
#include "meshwright/ops/op_list.inc"
#undef MW_OP

const std::vector<const OpDef*>& AllOps() {
  static const std::vector<const OpDef*>* const ops = new std::vector<const OpDef*>{
#define MW_OP(name) &name##Op(),
#include "meshwright/ops/op_list.inc"
#undef MW_OP
  };
  return *ops;
}

}  // namespace mw::ops
