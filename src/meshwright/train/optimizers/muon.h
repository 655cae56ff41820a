#ifndef MESHWRIGHT_TRAIN_OPTIMIZERS_MUON_H_
#define MESHWRIGHT_TRAIN_OPTIMIZERS_MUON_H_

#include <memory>

#include "meshwright/train/optimizer.h"

namespace mw::train {

// Whether muon orthogonalizes its updates: the matrices between embedding and head. It
// leaves those two, whose rows are words, and vectors to AdamW.
bool IsHiddenMatrix(const nn::ParamSpec& param);

// Momentum whose updates of hidden matrices are made nearly orthogonal; AdamW for the rest.
//
//   m = b m + (1 - b) g;  u = nesterov ? b m + (1 - b) g : m
//   x = u / max(norm(u), 1e-7), then five times
//       a = x x^T;  x = 3.4445 x + (-4.775 a + 2.0315 a a) x
//   p = p - lr (scale x + weight_decay p)
//
//   scale of a matrix [R, C]:  moonlight  0.2 sqrt(max(R, C)): an update of AdamW's size,
//                                         so that one rate fits both
//                              keller     sqrt(max(1, R / C))
//
// Each matrix of a stack by itself. Of R > C it is x^T x that is multiplied: the same with
// fewer flops.
//
// Slots: momentum of the parameter's dims; AdamW's for the rest.
// Sharding: a matrix that axes cut is gathered; where those axes divide a stack the
// matrices are dealt out over them instead, and each device makes its share.
// Precision: the iterations in muon_dtype, all else in f32.
// Cost: per matrix, with m = min(R, C) and n = max(R, C): 5 (4 m^2 n + 2 m^3) flops.
// Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025,
// arXiv:2502.16982. As torch.optim.Muon.
std::unique_ptr<Optimizer> CreateMuon(const OptimizerOptions& options);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_OPTIMIZERS_MUON_H_
