// materialize
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
