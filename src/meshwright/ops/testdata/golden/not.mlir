// not/pred
module @case {
  func.func public @main(%arg0: tensor<4x5xi1>) -> (tensor<4x5xi1>) {
    %0 = stablehlo.not %arg0 : tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// not/u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>) -> (tensor<4x5xui32>) {
    %0 = stablehlo.not %arg0 : tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
