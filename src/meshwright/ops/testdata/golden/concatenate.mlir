// concatenate
module @case {
  func.func public @main(%arg0: tensor<4x2xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<4x1xf32>) -> (tensor<4x6xf32>) {
    %0 = "stablehlo.concatenate"(%arg0, %arg1, %arg2) <{dimension = 1 : i64}> : (tensor<4x2xf32>, tensor<4x3xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
