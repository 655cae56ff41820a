// is_finite/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.is_finite"(%arg0) : (tensor<4x5xf32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
