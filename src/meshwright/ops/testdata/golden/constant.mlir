// constant/values
module @case {
  func.func public @main() -> (tensor<2x3xf32>) {
    %0 = stablehlo.constant dense<[[0x3DCCCCCD, -1.0, 2.0], [0x50DF8476, 0.0, 5.0]]> : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
// constant/splat
module @case {
  func.func public @main() -> (tensor<4x5xbf16>) {
    %0 = stablehlo.constant dense<0x3E9A> : tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
