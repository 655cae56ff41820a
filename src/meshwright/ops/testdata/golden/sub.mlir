// sub/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.subtract %arg0, %arg1 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// sub/u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>, %arg1: tensor<4x5xui32>) -> (tensor<4x5xui32>) {
    %0 = stablehlo.subtract %arg0, %arg1 : tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
