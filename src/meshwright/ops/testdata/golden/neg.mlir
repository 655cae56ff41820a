// neg/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.negate %arg0 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// neg/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.negate %arg0 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
// neg/bf16
module @case {
  func.func public @main(%arg0: tensor<4x5xbf16>) -> (tensor<4x5xbf16>) {
    %0 = stablehlo.negate %arg0 : tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
