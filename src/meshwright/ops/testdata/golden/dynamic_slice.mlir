// dynamic_slice/two_dims
module @case {
  func.func public @main(%arg0: tensor<5x4xf32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<2x3xf32>) {
    %0 = "stablehlo.dynamic_slice"(%arg0, %arg1, %arg2) <{slice_sizes = array<i64: 2, 3>}> : (tensor<5x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
// dynamic_slice/in_dim
module @case {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<i32>) -> (tensor<3x2xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = "stablehlo.dynamic_slice"(%arg0, %0, %arg1) <{slice_sizes = array<i64: 3, 2>}> : (tensor<3x5xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32>
    return %1 : tensor<3x2xf32>
  }
}
