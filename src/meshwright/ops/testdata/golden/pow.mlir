// pow/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.power %arg0, %arg1 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// pow/square of any sign
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.constant dense<2.0> : tensor<4x5xf32>
    %1 = stablehlo.power %arg0, %0 : tensor<4x5xf32>
    return %1 : tensor<4x5xf32>
  }
}
// pow/exponent zero
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.constant dense<0.0> : tensor<4x5xf32>
    %1 = stablehlo.power %arg0, %0 : tensor<4x5xf32>
    return %1 : tensor<4x5xf32>
  }
}
