// optimization_barrier
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<3xf32>) -> (tensor<4x5xf32>, tensor<3xf32>) {
    %0:2 = "stablehlo.optimization_barrier"(%arg0, %arg1) : (tensor<4x5xf32>, tensor<3xf32>) -> (tensor<4x5xf32>, tensor<3xf32>)
    return %0#0, %0#1 : tensor<4x5xf32>, tensor<3xf32>
  }
}
// optimization_barrier/one value
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0:1 = "stablehlo.optimization_barrier"(%arg0) : (tensor<4x5xf32>) -> (tensor<4x5xf32>)
    return %0#0 : tensor<4x5xf32>
  }
}
