// transpose
module @case {
  func.func public @main(%arg0: tensor<4x3x2xf32>) -> (tensor<2x4x3xf32>) {
    %0 = "stablehlo.transpose"(%arg0) <{permutation = array<i64: 2, 0, 1>}> : (tensor<4x3x2xf32>) -> tensor<2x4x3xf32>
    return %0 : tensor<2x4x3xf32>
  }
}
