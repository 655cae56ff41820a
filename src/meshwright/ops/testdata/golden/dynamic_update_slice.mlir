// dynamic_update_slice/two_dims
module @case {
  func.func public @main(%arg0: tensor<5x4xf32>, %arg1: tensor<2x3xf32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> (tensor<5x4xf32>) {
    %0 = "stablehlo.dynamic_update_slice"(%arg0, %arg1, %arg2, %arg3) : (tensor<5x4xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }
}
// dynamic_update_slice/in_dim
module @case {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<3x1xf32>, %arg2: tensor<i32>) -> (tensor<3x5xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = "stablehlo.dynamic_update_slice"(%arg0, %arg1, %0, %arg2) : (tensor<3x5xf32>, tensor<3x1xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
    return %1 : tensor<3x5xf32>
  }
}
