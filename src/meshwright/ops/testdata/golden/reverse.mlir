// reverse
module @case {
  func.func public @main(%arg0: tensor<4x3x2xf32>) -> (tensor<4x3x2xf32>) {
    %0 = "stablehlo.reverse"(%arg0) <{dimensions = array<i64: 1, 2>}> : (tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
    return %0 : tensor<4x3x2xf32>
  }
}
