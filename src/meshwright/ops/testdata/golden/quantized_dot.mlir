// quantized_dot/f32
module @case {
  func.func public @main(%arg0: tensor<2x3x64xf32>, %arg1: tensor<5x64xi8>, %arg2: tensor<5x2xf32>) -> (tensor<2x3x5xf32>) {
    %0 = "stablehlo.convert"(%arg1) : (tensor<5x64xi8>) -> tensor<5x64xf32>
    %1 = "stablehlo.reshape"(%0) : (tensor<5x64xf32>) -> tensor<5x2x32xf32>
    %2 = "stablehlo.broadcast_in_dim"(%arg2) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<5x2xf32>) -> tensor<5x2x32xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<5x2x32xf32>
    %4 = "stablehlo.reshape"(%3) : (tensor<5x2x32xf32>) -> tensor<5x64xf32>
    %5 = stablehlo.reshape %arg0 : (tensor<2x3x64xf32>) -> tensor<6x64xf32>
    %6 = "stablehlo.dot_general"(%5, %4) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<6x64xf32>, tensor<5x64xf32>) -> tensor<6x5xf32>
    %7 = stablehlo.reshape %6 : (tensor<6x5xf32>) -> tensor<2x3x5xf32>
    return %7 : tensor<2x3x5xf32>
  }
}
// quantized_dot/bf16
module @case {
  func.func public @main(%arg0: tensor<2x3x64xbf16>, %arg1: tensor<5x64xi8>, %arg2: tensor<5x2xf32>) -> (tensor<2x3x5xbf16>) {
    %0 = "stablehlo.convert"(%arg1) : (tensor<5x64xi8>) -> tensor<5x64xf32>
    %1 = "stablehlo.reshape"(%0) : (tensor<5x64xf32>) -> tensor<5x2x32xf32>
    %2 = "stablehlo.broadcast_in_dim"(%arg2) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<5x2xf32>) -> tensor<5x2x32xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<5x2x32xf32>
    %4 = "stablehlo.reshape"(%3) : (tensor<5x2x32xf32>) -> tensor<5x64xf32>
    %5 = "stablehlo.convert"(%4) : (tensor<5x64xf32>) -> tensor<5x64xbf16>
    %6 = stablehlo.reshape %arg0 : (tensor<2x3x64xbf16>) -> tensor<6x64xbf16>
    %7 = "stablehlo.dot_general"(%6, %5) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<6x64xbf16>, tensor<5x64xbf16>) -> tensor<6x5xbf16>
    %8 = stablehlo.reshape %7 : (tensor<6x5xbf16>) -> tensor<2x3x5xbf16>
    return %8 : tensor<2x3x5xbf16>
  }
}
