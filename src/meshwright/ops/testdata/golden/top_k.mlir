// top_k
module @case {
  func.func public @main(%arg0: tensor<3x8xf32>) -> (tensor<3x3xf32>, tensor<3x3xi32>) {
    %0, %1 = chlo.top_k(%arg0, k = 3) : tensor<3x8xf32> -> (tensor<3x3xf32>, tensor<3x3xi32>)
    return %0, %1 : tensor<3x3xf32>, tensor<3x3xi32>
  }
}
