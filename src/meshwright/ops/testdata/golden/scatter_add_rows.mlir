// scatter_add_rows/drop
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<2x5xi32>, %arg2: tensor<2x5x3xf32>) -> (tensor<4x3xf32>) {
    %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
    ^bb0(%1: tensor<f32>, %2: tensor<f32>):
      %3 = stablehlo.add %1, %2 : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }) : (tensor<4x3xf32>, tensor<2x5xi32>, tensor<2x5x3xf32>) -> tensor<4x3xf32>
    return %0 : tensor<4x3xf32>
  }
}
// scatter_add_rows/clamp
module @case {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<6xi32>, %arg2: tensor<6xf32>) -> (tensor<4xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<3> : tensor<i32>
    %2 = stablehlo.clamp %0, %arg1, %1 : (tensor<i32>, tensor<6xi32>, tensor<i32>) -> tensor<6xi32>
    %3 = "stablehlo.scatter"(%arg0, %2, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%4: tensor<f32>, %5: tensor<f32>):
      %6 = stablehlo.add %4, %5 : tensor<f32>
      stablehlo.return %6 : tensor<f32>
    }) : (tensor<4xf32>, tensor<6xi32>, tensor<6xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
