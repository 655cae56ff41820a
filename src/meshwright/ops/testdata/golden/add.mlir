// add/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// add/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
// add/bf16
module @case {
  func.func public @main(%arg0: tensor<4x5xbf16>, %arg1: tensor<4x5xbf16>) -> (tensor<4x5xbf16>) {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
