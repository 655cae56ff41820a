// What kernels are compiled for: every target of Highway but those of scalable vectors, since loops
// here keep arrays of vectors. To be included before anything of Highway.
#ifndef MESHWRIGHT_KERNELS_HIGHWAY_TARGETS_H_
#define MESHWRIGHT_KERNELS_HIGHWAY_TARGETS_H_

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // MESHWRIGHT_KERNELS_HIGHWAY_TARGETS_H_
