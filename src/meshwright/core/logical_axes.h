// The logical axes: the names of the dims of parameters and activations, which sharding rules
// map to mesh axes.
#ifndef MESHWRIGHT_CORE_LOGICAL_AXES_H_
#define MESHWRIGHT_CORE_LOGICAL_AXES_H_

#include <string>
#include <vector>

namespace mw {

// Of activations: those that nn::Constrain takes.
const std::vector<std::string>& ActivationLogicalAxes();

// Every name that a rule may have: those of activations, of parameters and of gradients, and
// those that built-in rule sets have for models to come. docs/sharding.md says what each is
// of. A model with a new one adds it here.
const std::vector<std::string>& LogicalAxes();

}  // namespace mw

#endif  // MESHWRIGHT_CORE_LOGICAL_AXES_H_
