// take_rows/matrix
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<2x5xi32>) -> (tensor<2x5x3xf32>) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 3>}> : (tensor<4x3xf32>, tensor<2x5xi32>) -> tensor<2x5x3xf32>
    return %0 : tensor<2x5x3xf32>
  }
}
// take_rows/vector_scalar_id
module @case {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<i32>, %arg2: tensor<3x2x2xf32>, %arg3: tensor<3xui32>) -> (tensor<f32>, tensor<3x2x2xf32>) {
    %0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 0>, slice_sizes = array<i64: 1>}> : (tensor<4xf32>, tensor<i32>) -> tensor<f32>
    %1 = "stablehlo.gather"(%arg2, %arg3) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2, 2>}> : (tensor<3x2x2xf32>, tensor<3xui32>) -> tensor<3x2x2xf32>
    return %0, %1 : tensor<f32>, tensor<3x2x2xf32>
  }
}
