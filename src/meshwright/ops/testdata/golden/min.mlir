// min/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.minimum %arg0, %arg1 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// min/u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>, %arg1: tensor<4x5xui32>) -> (tensor<4x5xui32>) {
    %0 = stablehlo.minimum %arg0, %arg1 : tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
// min/tie
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.minimum %arg0, %arg0 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
