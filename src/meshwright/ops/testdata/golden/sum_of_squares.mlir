// sum_of_squares
module @case {
  func.func public @main(%arg0: tensor<3x5x2xf32>, %arg1: tensor<f32>) -> (tensor<f32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5x2xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<3x5x2xf32>
    %2 = stablehlo.multiply %1, %1 : tensor<3x5x2xf32>
    %3 = stablehlo.constant dense<0.0> : tensor<f32>
    %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.add across dimensions = [2] : (tensor<3x5x2xf32>, tensor<f32>) -> tensor<3x5xf32>
    %5:1 = "stablehlo.optimization_barrier"(%4) : (tensor<3x5xf32>) -> (tensor<3x5xf32>)
    %6 = stablehlo.constant dense<0.0> : tensor<f32>
    %7 = stablehlo.reduce(%5#0 init: %6) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
    return %7 : tensor<f32>
  }
}
