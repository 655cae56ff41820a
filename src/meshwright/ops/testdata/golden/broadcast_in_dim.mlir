// broadcast_in_dim/new dims
module @case {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<3x4x2xf32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg0) <{broadcast_dimensions = array<i64: 1>}> : (tensor<4xf32>) -> tensor<3x4x2xf32>
    return %0 : tensor<3x4x2xf32>
  }
}
// broadcast_in_dim/size 1 grows
module @case {
  func.func public @main(%arg0: tensor<4x1xf32>) -> (tensor<3x4x5xf32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg0) <{broadcast_dimensions = array<i64: 1, 2>}> : (tensor<4x1xf32>) -> tensor<3x4x5xf32>
    return %0 : tensor<3x4x5xf32>
  }
}
// broadcast_in_dim/scalar
module @case {
  func.func public @main(%arg0: tensor<f32>) -> (tensor<3x4xf32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg0) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}
