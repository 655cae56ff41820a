// stop_gradient
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    return %arg0 : tensor<4x5xf32>
  }
}
