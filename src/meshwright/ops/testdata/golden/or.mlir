// or/pred
module @case {
  func.func public @main(%arg0: tensor<4x5xi1>, %arg1: tensor<4x5xi1>) -> (tensor<4x5xi1>) {
    %0 = stablehlo.or %arg0, %arg1 : tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// or/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.or %arg0, %arg1 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
