// reshape/merge
module @case {
  func.func public @main(%arg0: tensor<4x3x2xf32>) -> (tensor<12x2xf32>) {
    %0 = "stablehlo.reshape"(%arg0) : (tensor<4x3x2xf32>) -> tensor<12x2xf32>
    return %0 : tensor<12x2xf32>
  }
}
// reshape/split
module @case {
  func.func public @main(%arg0: tensor<4x6xf32>) -> (tensor<4x2x3xf32>) {
    %0 = "stablehlo.reshape"(%arg0) : (tensor<4x6xf32>) -> tensor<4x2x3xf32>
    return %0 : tensor<4x2x3xf32>
  }
}
// reshape/ones come and go
module @case {
  func.func public @main(%arg0: tensor<4x1x6xf32>) -> (tensor<1x4x6x1xf32>) {
    %0 = "stablehlo.reshape"(%arg0) : (tensor<4x1x6xf32>) -> tensor<1x4x6x1xf32>
    return %0 : tensor<1x4x6x1xf32>
  }
}
// reshape/to scalar
module @case {
  func.func public @main(%arg0: tensor<1x1xf32>) -> (tensor<f32>) {
    %0 = "stablehlo.reshape"(%arg0) : (tensor<1x1xf32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}
