// dot_general/batched
module @case {
  func.func public @main(%arg0: tensor<2x4x3xf32>, %arg1: tensor<2x5x3xf32>) -> (tensor<2x4x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<2x4x3xf32>, tensor<2x5x3xf32>) -> tensor<2x4x5xf32>
    return %0 : tensor<2x4x5xf32>
  }
}
// dot_general/matrices
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<3x5xf32>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// dot_general/tokens of rows
module @case {
  func.func public @main(%arg0: tensor<2x4x3xf32>, %arg1: tensor<5x3xf32>) -> (tensor<2x4x5xf32>) {
    %0 = stablehlo.reshape %arg0 : (tensor<2x4x3xf32>) -> tensor<8x3xf32>
    %1 = "stablehlo.dot_general"(%0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<8x3xf32>, tensor<5x3xf32>) -> tensor<8x5xf32>
    %2 = stablehlo.reshape %1 : (tensor<8x5xf32>) -> tensor<2x4x5xf32>
    return %2 : tensor<2x4x5xf32>
  }
}
// dot_general/contracted in another order
module @case {
  func.func public @main(%arg0: tensor<2x4x3x2xf32>, %arg1: tensor<3x4x2x5xf32>) -> (tensor<2x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1, 2], rhs_contracting_dimensions = [2, 1, 0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<2x4x3x2xf32>, tensor<3x4x2x5xf32>) -> tensor<2x5xf32>
    return %0 : tensor<2x5xf32>
  }
}
