// iota/s32
module @case {
  func.func public @main() -> (tensor<4x5xi32>) {
    %0 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
// iota/f32
module @case {
  func.func public @main() -> (tensor<4x5xf32>) {
    %0 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// iota/bf16
module @case {
  func.func public @main() -> (tensor<4x5xbf16>) {
    %0 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
// iota/u32
module @case {
  func.func public @main() -> (tensor<4x5xui32>) {
    %0 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x5xui32>
    return %0 : tensor<4x5xui32>
  }
}
