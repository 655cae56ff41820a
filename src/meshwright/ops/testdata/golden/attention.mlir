// attention/grouped queries
module @case {
  func.func public @main(%arg0: tensor<2x2x3x5x4xf32>, %arg1: tensor<2x2x5x4xf32>, %arg2: tensor<2x2x5x4xf32>, %arg3: tensor<2x5xi32>) -> (tensor<2x2x3x5x4xf32>, tensor<2x2x3x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x4xf32>, tensor<2x2x5x4xf32>) -> tensor<2x2x3x5x5xf32>
    %1 = stablehlo.constant dense<0x3F000000> : tensor<2x2x3x5x5xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x2x3x5x5xf32>
    %3 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %4 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %5 = "stablehlo.compare"(%4, %3) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x5x5xi32>
    %7 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x5x5xi32>
    %8 = "stablehlo.compare"(%7, %6) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %9 = stablehlo.and %5, %8 : tensor<2x5x5xi1>
    %10 = "stablehlo.broadcast_in_dim"(%9) <{broadcast_dimensions = array<i64: 0, 3, 4>}> : (tensor<2x5x5xi1>) -> tensor<2x2x3x5x5xi1>
    %11 = stablehlo.constant dense<0xFF800000> : tensor<2x2x3x5x5xf32>
    %12 = "stablehlo.select"(%10, %2, %11) : (tensor<2x2x3x5x5xi1>, tensor<2x2x3x5x5xf32>, tensor<2x2x3x5x5xf32>) -> tensor<2x2x3x5x5xf32>
    %13 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %14 = stablehlo.reduce(%12 init: %13) applies stablehlo.maximum across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %15 = "stablehlo.broadcast_in_dim"(%14) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %16 = stablehlo.subtract %12, %15 : tensor<2x2x3x5x5xf32>
    %17 = stablehlo.exponential %16 : tensor<2x2x3x5x5xf32>
    %18 = stablehlo.constant dense<0.0> : tensor<f32>
    %19 = stablehlo.reduce(%17 init: %18) applies stablehlo.add across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %20 = "stablehlo.broadcast_in_dim"(%19) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %21 = stablehlo.divide %17, %20 : tensor<2x2x3x5x5xf32>
    %22 = "stablehlo.dot_general"(%21, %arg2) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x5xf32>, tensor<2x2x5x4xf32>) -> tensor<2x2x3x5x4xf32>
    %23 = stablehlo.log %19 : tensor<2x2x3x5xf32>
    %24 = stablehlo.add %14, %23 : tensor<2x2x3x5xf32>
    return %22, %24 : tensor<2x2x3x5x4xf32>, tensor<2x2x3x5xf32>
  }
}
// attention/named residuals
module @case {
  func.func public @main(%arg0: tensor<2x2x3x5x4xf32>, %arg1: tensor<2x2x5x4xf32>, %arg2: tensor<2x2x5x4xf32>, %arg3: tensor<2x5xi32>) -> (tensor<2x2x3x5x4xf32>, tensor<2x2x3x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x4xf32>, tensor<2x2x5x4xf32>) -> tensor<2x2x3x5x5xf32>
    %1 = stablehlo.constant dense<0x3F000000> : tensor<2x2x3x5x5xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x2x3x5x5xf32>
    %3 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %4 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %5 = "stablehlo.compare"(%4, %3) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x5x5xi32>
    %7 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x5x5xi32>
    %8 = "stablehlo.compare"(%7, %6) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %9 = stablehlo.and %5, %8 : tensor<2x5x5xi1>
    %10 = "stablehlo.broadcast_in_dim"(%9) <{broadcast_dimensions = array<i64: 0, 3, 4>}> : (tensor<2x5x5xi1>) -> tensor<2x2x3x5x5xi1>
    %11 = stablehlo.constant dense<0xFF800000> : tensor<2x2x3x5x5xf32>
    %12 = "stablehlo.select"(%10, %2, %11) : (tensor<2x2x3x5x5xi1>, tensor<2x2x3x5x5xf32>, tensor<2x2x3x5x5xf32>) -> tensor<2x2x3x5x5xf32>
    %13 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %14 = stablehlo.reduce(%12 init: %13) applies stablehlo.maximum across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %15 = "stablehlo.broadcast_in_dim"(%14) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %16 = stablehlo.subtract %12, %15 : tensor<2x2x3x5x5xf32>
    %17 = stablehlo.exponential %16 : tensor<2x2x3x5x5xf32>
    %18 = stablehlo.constant dense<0.0> : tensor<f32>
    %19 = stablehlo.reduce(%17 init: %18) applies stablehlo.add across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %20 = "stablehlo.broadcast_in_dim"(%19) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %21 = stablehlo.divide %17, %20 : tensor<2x2x3x5x5xf32>
    %22 = "stablehlo.dot_general"(%21, %arg2) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x5xf32>, tensor<2x2x5x4xf32>) -> tensor<2x2x3x5x4xf32>
    %23 = stablehlo.log %19 : tensor<2x2x3x5xf32>
    %24 = stablehlo.add %14, %23 : tensor<2x2x3x5xf32>
    return %22, %24 : tensor<2x2x3x5x4xf32>, tensor<2x2x3x5xf32>
  }
}
// attention/bf16
module @case {
  func.func public @main(%arg0: tensor<2x2x3x5x4xbf16>, %arg1: tensor<2x2x5x4xbf16>, %arg2: tensor<2x2x5x4xbf16>, %arg3: tensor<2x5xi32>) -> (tensor<2x2x3x5x4xbf16>, tensor<2x2x3x5xf32>) {
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x4xbf16>, tensor<2x2x5x4xbf16>) -> tensor<2x2x3x5x5xf32>
    %1 = stablehlo.constant dense<0x3F000000> : tensor<2x2x3x5x5xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x2x3x5x5xf32>
    %3 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %4 = "stablehlo.broadcast_in_dim"(%arg3) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x5xi32>) -> tensor<2x5x5xi32>
    %5 = "stablehlo.compare"(%4, %3) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x5x5xi32>
    %7 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x5x5xi32>
    %8 = "stablehlo.compare"(%7, %6) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
    %9 = stablehlo.and %5, %8 : tensor<2x5x5xi1>
    %10 = "stablehlo.broadcast_in_dim"(%9) <{broadcast_dimensions = array<i64: 0, 3, 4>}> : (tensor<2x5x5xi1>) -> tensor<2x2x3x5x5xi1>
    %11 = stablehlo.constant dense<0xFF800000> : tensor<2x2x3x5x5xf32>
    %12 = "stablehlo.select"(%10, %2, %11) : (tensor<2x2x3x5x5xi1>, tensor<2x2x3x5x5xf32>, tensor<2x2x3x5x5xf32>) -> tensor<2x2x3x5x5xf32>
    %13 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %14 = stablehlo.reduce(%12 init: %13) applies stablehlo.maximum across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %15 = "stablehlo.broadcast_in_dim"(%14) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %16 = stablehlo.subtract %12, %15 : tensor<2x2x3x5x5xf32>
    %17 = stablehlo.exponential %16 : tensor<2x2x3x5x5xf32>
    %18 = stablehlo.constant dense<0.0> : tensor<f32>
    %19 = stablehlo.reduce(%17 init: %18) applies stablehlo.add across dimensions = [4] : (tensor<2x2x3x5x5xf32>, tensor<f32>) -> tensor<2x2x3x5xf32>
    %20 = "stablehlo.broadcast_in_dim"(%19) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x5xf32>) -> tensor<2x2x3x5x5xf32>
    %21 = stablehlo.divide %17, %20 : tensor<2x2x3x5x5xf32>
    %22 = "stablehlo.convert"(%21) : (tensor<2x2x3x5x5xf32>) -> tensor<2x2x3x5x5xbf16>
    %23 = "stablehlo.dot_general"(%22, %arg2) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x5x5xbf16>, tensor<2x2x5x4xbf16>) -> tensor<2x2x3x5x4xbf16>
    %24 = stablehlo.log %19 : tensor<2x2x3x5xf32>
    %25 = stablehlo.add %14, %24 : tensor<2x2x3x5xf32>
    return %23, %25 : tensor<2x2x3x5x4xbf16>, tensor<2x2x3x5xf32>
  }
}
