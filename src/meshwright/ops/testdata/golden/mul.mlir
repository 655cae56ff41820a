// mul/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.multiply %arg0, %arg1 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// mul/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.multiply %arg0, %arg1 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
