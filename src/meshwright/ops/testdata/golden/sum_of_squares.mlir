// sum_of_squares
module @case {
  func.func public @main(%arg0: tensor<3x5x2xf32>, %arg1: tensor<f32>) -> (tensor<f32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5x2xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<3x5x2xf32>
    %2 = stablehlo.multiply %1, %1 : tensor<3x5x2xf32>
    %3 = stablehlo.constant dense<0.0> : tensor<f32>
    %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.add across dimensions = [2] : (tensor<3x5x2xf32>, tensor<f32>) -> tensor<3x5xf32>
    %5 = stablehlo.constant dense<0.0> : tensor<f32>
    %6 = stablehlo.reduce(%4 init: %5) applies stablehlo.add across dimensions = [1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
    %7 = stablehlo.constant dense<0.0> : tensor<f32>
    %8 = stablehlo.reduce(%6 init: %7) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    return %8 : tensor<f32>
  }
}
