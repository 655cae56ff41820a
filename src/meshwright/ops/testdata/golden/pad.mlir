// pad/edges
module @case {
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<f32>) -> (tensor<6x4xf32>) {
    %0 = "stablehlo.pad"(%arg0, %arg1) <{edge_padding_high = array<i64: 2, 0>, edge_padding_low = array<i64: 1, 0>, interior_padding = array<i64: 0, 0>}> : (tensor<3x4xf32>, tensor<f32>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}
// pad/interior
module @case {
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<f32>) -> (tensor<3x11xf32>) {
    %0 = "stablehlo.pad"(%arg0, %arg1) <{edge_padding_high = array<i64: 0, 0>, edge_padding_low = array<i64: 0, 1>, interior_padding = array<i64: 0, 2>}> : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x11xf32>
    return %0 : tensor<3x11xf32>
  }
}
// pad/negative
module @case {
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<f32>) -> (tensor<5x5xf32>) {
    %0 = "stablehlo.pad"(%arg0, %arg1) <{edge_padding_high = array<i64: 1, -1>, edge_padding_low = array<i64: -1, 2>, interior_padding = array<i64: 1, 0>}> : (tensor<3x4xf32>, tensor<f32>) -> tensor<5x5xf32>
    return %0 : tensor<5x5xf32>
  }
}
// pad/constant
module @case {
  func.func public @main(%arg0: tensor<3x4xf32>) -> (tensor<3x6xf32>) {
    %0 = stablehlo.constant dense<2.0> : tensor<f32>
    %1 = "stablehlo.pad"(%arg0, %0) <{edge_padding_high = array<i64: 0, 1>, edge_padding_low = array<i64: 0, 1>, interior_padding = array<i64: 0, 0>}> : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x6xf32>
    return %1 : tensor<3x6xf32>
  }
}
