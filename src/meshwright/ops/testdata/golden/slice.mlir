// slice/window
module @case {
  func.func public @main(%arg0: tensor<5x4xf32>) -> (tensor<3x4xf32>) {
    %0 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 4, 4>, start_indices = array<i64: 1, 0>, strides = array<i64: 1, 1>}> : (tensor<5x4xf32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}
// slice/strided
module @case {
  func.func public @main(%arg0: tensor<8x4xf32>) -> (tensor<3x2xf32>) {
    %0 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 8, 4>, start_indices = array<i64: 1, 0>, strides = array<i64: 3, 2>}> : (tensor<8x4xf32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
}
// slice/of one dim
module @case {
  func.func public @main(%arg0: tensor<5x4xf32>) -> (tensor<5x2xf32>) {
    %0 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 5, 3>, start_indices = array<i64: 0, 1>, strides = array<i64: 1, 1>}> : (tensor<5x4xf32>) -> tensor<5x2xf32>
    return %0 : tensor<5x2xf32>
  }
}
