// rem/s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi32>) {
    %0 = stablehlo.remainder %arg0, %arg1 : tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
// rem/f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = stablehlo.constant dense<0x4039999A> : tensor<4x5xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<4x5xf32>
    %2 = stablehlo.constant dense<0x3DCCCCCD> : tensor<4x5xf32>
    %3 = stablehlo.multiply %arg0, %2 : tensor<4x5xf32>
    %4 = stablehlo.constant dense<7.0> : tensor<4x5xf32>
    %5 = stablehlo.add %3, %4 : tensor<4x5xf32>
    %6 = stablehlo.remainder %5, %1 : tensor<4x5xf32>
    return %6 : tensor<4x5xf32>
  }
}
