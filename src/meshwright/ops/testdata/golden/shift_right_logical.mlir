// shift_right_logical/u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>, %arg1: tensor<4x5xui32>) -> (tensor<4x5xui32>) {
    %0 = stablehlo.shift_right_logical %arg0, %arg1 : tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
// shift_right_logical/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.shift_right_logical %arg0, %arg1 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
