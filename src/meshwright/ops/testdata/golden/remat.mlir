// remat/full
module @case {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.exponential %arg0 : tensor<2x3xf32>
    %1 = stablehlo.multiply %0, %arg1 : tensor<2x3xf32>
    %2 = stablehlo.sine %1 : tensor<2x3xf32>
    return %2, %1 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
// remat/none
module @case {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.exponential %arg0 : tensor<2x3xf32>
    %1 = stablehlo.multiply %0, %arg1 : tensor<2x3xf32>
    %2 = stablehlo.sine %1 : tensor<2x3xf32>
    return %2, %1 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
