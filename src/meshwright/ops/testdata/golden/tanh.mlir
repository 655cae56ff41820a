// tanh/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// tanh/bf16
module @case {
  func.func public @main(%arg0: tensor<4x5xbf16>) -> (tensor<4x5xbf16>) {
    %0 = stablehlo.tanh %arg0 : tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
