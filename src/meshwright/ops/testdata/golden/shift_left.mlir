// shift_left/u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>, %arg1: tensor<4x5xui32>) -> (tensor<4x5xui32>) {
    %0 = stablehlo.shift_left %arg0, %arg1 : tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
