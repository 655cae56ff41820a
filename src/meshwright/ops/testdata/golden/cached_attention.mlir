// cached_attention/f32
module @case {
  func.func public @main(%arg0: tensor<2x2x2x3x4xf32>, %arg1: tensor<2x2x2x4xf32>, %arg2: tensor<2x2x2x4xf32>, %arg3: tensor<2x2x5x2x4xf32>, %arg4: tensor<2x2x5x2x4xf32>, %arg5: tensor<i32>, %arg6: tensor<2xi32>) -> (tensor<2x2x2x3x4xf32>, tensor<2x2x5x2x4xf32>, tensor<2x2x5x2x4xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = "stablehlo.slice"(%arg1) <{limit_indices = array<i64: 1, 2, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xf32>) -> tensor<1x2x2x4xf32>
    %2 = "stablehlo.reshape"(%1) : (tensor<1x2x2x4xf32>) -> tensor<1x1x2x2x4xf32>
    %3 = "stablehlo.slice"(%arg6) <{limit_indices = array<i64: 1>, start_indices = array<i64: 0>, strides = array<i64: 1>}> : (tensor<2xi32>) -> tensor<1xi32>
    %4 = "stablehlo.reshape"(%3) : (tensor<1xi32>) -> tensor<i32>
    %5 = "stablehlo.dynamic_update_slice"(%arg3, %2, %arg5, %0, %4, %0, %0) : (tensor<2x2x5x2x4xf32>, tensor<1x1x2x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xf32>
    %6 = "stablehlo.slice"(%arg1) <{limit_indices = array<i64: 2, 2, 2, 4>, start_indices = array<i64: 1, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xf32>) -> tensor<1x2x2x4xf32>
    %7 = "stablehlo.reshape"(%6) : (tensor<1x2x2x4xf32>) -> tensor<1x1x2x2x4xf32>
    %8 = "stablehlo.slice"(%arg6) <{limit_indices = array<i64: 2>, start_indices = array<i64: 1>, strides = array<i64: 1>}> : (tensor<2xi32>) -> tensor<1xi32>
    %9 = "stablehlo.reshape"(%8) : (tensor<1xi32>) -> tensor<i32>
    %10 = stablehlo.constant dense<1> : tensor<i32>
    %11 = "stablehlo.dynamic_update_slice"(%5, %7, %arg5, %10, %9, %0, %0) : (tensor<2x2x5x2x4xf32>, tensor<1x1x2x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xf32>
    %12 = "stablehlo.slice"(%arg2) <{limit_indices = array<i64: 1, 2, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xf32>) -> tensor<1x2x2x4xf32>
    %13 = "stablehlo.reshape"(%12) : (tensor<1x2x2x4xf32>) -> tensor<1x1x2x2x4xf32>
    %14 = "stablehlo.dynamic_update_slice"(%arg4, %13, %arg5, %0, %4, %0, %0) : (tensor<2x2x5x2x4xf32>, tensor<1x1x2x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xf32>
    %15 = "stablehlo.slice"(%arg2) <{limit_indices = array<i64: 2, 2, 2, 4>, start_indices = array<i64: 1, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xf32>) -> tensor<1x2x2x4xf32>
    %16 = "stablehlo.reshape"(%15) : (tensor<1x2x2x4xf32>) -> tensor<1x1x2x2x4xf32>
    %17 = "stablehlo.dynamic_update_slice"(%14, %16, %arg5, %10, %9, %0, %0) : (tensor<2x2x5x2x4xf32>, tensor<1x1x2x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xf32>
    %18 = "stablehlo.dynamic_slice"(%11, %arg5, %0, %0, %0, %0) <{slice_sizes = array<i64: 1, 2, 5, 2, 4>}> : (tensor<2x2x5x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5x2x4xf32>
    %19 = "stablehlo.reshape"(%18) : (tensor<1x2x5x2x4xf32>) -> tensor<2x5x2x4xf32>
    %20 = "stablehlo.dynamic_slice"(%17, %arg5, %0, %0, %0, %0) <{slice_sizes = array<i64: 1, 2, 5, 2, 4>}> : (tensor<2x2x5x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5x2x4xf32>
    %21 = "stablehlo.reshape"(%20) : (tensor<1x2x5x2x4xf32>) -> tensor<2x5x2x4xf32>
    %22 = "stablehlo.transpose"(%arg0) <{permutation = array<i64: 0, 2, 3, 1, 4>}> : (tensor<2x2x2x3x4xf32>) -> tensor<2x2x3x2x4xf32>
    %23 = "stablehlo.dot_general"(%22, %19) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x2x4xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x3x2x5xf32>
    %24 = stablehlo.constant dense<0x3F000000> : tensor<2x2x3x2x5xf32>
    %25 = stablehlo.multiply %23, %24 : tensor<2x2x3x2x5xf32>
    %26 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x2x5xi32>
    %27 = "stablehlo.broadcast_in_dim"(%arg6) <{broadcast_dimensions = array<i64: 0>}> : (tensor<2xi32>) -> tensor<2x2x5xi32>
    %28 = stablehlo.add %27, %26 : tensor<2x2x5xi32>
    %29 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x2x5xi32>
    %30 = "stablehlo.compare"(%29, %28) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x2x5xi32>, tensor<2x2x5xi32>) -> tensor<2x2x5xi1>
    %31 = "stablehlo.broadcast_in_dim"(%30) <{broadcast_dimensions = array<i64: 0, 3, 4>}> : (tensor<2x2x5xi1>) -> tensor<2x2x3x2x5xi1>
    %32 = stablehlo.constant dense<0xFF800000> : tensor<2x2x3x2x5xf32>
    %33 = "stablehlo.select"(%31, %25, %32) : (tensor<2x2x3x2x5xi1>, tensor<2x2x3x2x5xf32>, tensor<2x2x3x2x5xf32>) -> tensor<2x2x3x2x5xf32>
    %34 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %35 = stablehlo.reduce(%33 init: %34) applies stablehlo.maximum across dimensions = [4] : (tensor<2x2x3x2x5xf32>, tensor<f32>) -> tensor<2x2x3x2xf32>
    %36 = "stablehlo.broadcast_in_dim"(%35) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x2xf32>) -> tensor<2x2x3x2x5xf32>
    %37 = stablehlo.subtract %33, %36 : tensor<2x2x3x2x5xf32>
    %38 = stablehlo.exponential %37 : tensor<2x2x3x2x5xf32>
    %39 = stablehlo.constant dense<0.0> : tensor<f32>
    %40 = stablehlo.reduce(%38 init: %39) applies stablehlo.add across dimensions = [4] : (tensor<2x2x3x2x5xf32>, tensor<f32>) -> tensor<2x2x3x2xf32>
    %41 = "stablehlo.broadcast_in_dim"(%40) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x2xf32>) -> tensor<2x2x3x2x5xf32>
    %42 = stablehlo.divide %38, %41 : tensor<2x2x3x2x5xf32>
    %43 = "stablehlo.dot_general"(%42, %21) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x2x5xf32>, tensor<2x5x2x4xf32>) -> tensor<2x2x3x2x4xf32>
    %44 = "stablehlo.transpose"(%43) <{permutation = array<i64: 0, 3, 1, 2, 4>}> : (tensor<2x2x3x2x4xf32>) -> tensor<2x2x2x3x4xf32>
    return %44, %11, %17 : tensor<2x2x2x3x4xf32>, tensor<2x2x5x2x4xf32>, tensor<2x2x5x2x4xf32>
  }
}
// cached_attention/bf16
module @case {
  func.func public @main(%arg0: tensor<2x2x2x3x4xbf16>, %arg1: tensor<2x2x2x4xbf16>, %arg2: tensor<2x2x2x4xbf16>, %arg3: tensor<2x2x5x2x4xbf16>, %arg4: tensor<2x2x5x2x4xbf16>, %arg5: tensor<i32>, %arg6: tensor<2xi32>) -> (tensor<2x2x2x3x4xbf16>, tensor<2x2x5x2x4xbf16>, tensor<2x2x5x2x4xbf16>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = "stablehlo.slice"(%arg1) <{limit_indices = array<i64: 1, 2, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xbf16>) -> tensor<1x2x2x4xbf16>
    %2 = "stablehlo.reshape"(%1) : (tensor<1x2x2x4xbf16>) -> tensor<1x1x2x2x4xbf16>
    %3 = "stablehlo.slice"(%arg6) <{limit_indices = array<i64: 1>, start_indices = array<i64: 0>, strides = array<i64: 1>}> : (tensor<2xi32>) -> tensor<1xi32>
    %4 = "stablehlo.reshape"(%3) : (tensor<1xi32>) -> tensor<i32>
    %5 = "stablehlo.dynamic_update_slice"(%arg3, %2, %arg5, %0, %4, %0, %0) : (tensor<2x2x5x2x4xbf16>, tensor<1x1x2x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xbf16>
    %6 = "stablehlo.slice"(%arg1) <{limit_indices = array<i64: 2, 2, 2, 4>, start_indices = array<i64: 1, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xbf16>) -> tensor<1x2x2x4xbf16>
    %7 = "stablehlo.reshape"(%6) : (tensor<1x2x2x4xbf16>) -> tensor<1x1x2x2x4xbf16>
    %8 = "stablehlo.slice"(%arg6) <{limit_indices = array<i64: 2>, start_indices = array<i64: 1>, strides = array<i64: 1>}> : (tensor<2xi32>) -> tensor<1xi32>
    %9 = "stablehlo.reshape"(%8) : (tensor<1xi32>) -> tensor<i32>
    %10 = stablehlo.constant dense<1> : tensor<i32>
    %11 = "stablehlo.dynamic_update_slice"(%5, %7, %arg5, %10, %9, %0, %0) : (tensor<2x2x5x2x4xbf16>, tensor<1x1x2x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xbf16>
    %12 = "stablehlo.slice"(%arg2) <{limit_indices = array<i64: 1, 2, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xbf16>) -> tensor<1x2x2x4xbf16>
    %13 = "stablehlo.reshape"(%12) : (tensor<1x2x2x4xbf16>) -> tensor<1x1x2x2x4xbf16>
    %14 = "stablehlo.dynamic_update_slice"(%arg4, %13, %arg5, %0, %4, %0, %0) : (tensor<2x2x5x2x4xbf16>, tensor<1x1x2x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xbf16>
    %15 = "stablehlo.slice"(%arg2) <{limit_indices = array<i64: 2, 2, 2, 4>, start_indices = array<i64: 1, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x2x2x4xbf16>) -> tensor<1x2x2x4xbf16>
    %16 = "stablehlo.reshape"(%15) : (tensor<1x2x2x4xbf16>) -> tensor<1x1x2x2x4xbf16>
    %17 = "stablehlo.dynamic_update_slice"(%14, %16, %arg5, %10, %9, %0, %0) : (tensor<2x2x5x2x4xbf16>, tensor<1x1x2x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5x2x4xbf16>
    %18 = "stablehlo.dynamic_slice"(%11, %arg5, %0, %0, %0, %0) <{slice_sizes = array<i64: 1, 2, 5, 2, 4>}> : (tensor<2x2x5x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5x2x4xbf16>
    %19 = "stablehlo.reshape"(%18) : (tensor<1x2x5x2x4xbf16>) -> tensor<2x5x2x4xbf16>
    %20 = "stablehlo.dynamic_slice"(%17, %arg5, %0, %0, %0, %0) <{slice_sizes = array<i64: 1, 2, 5, 2, 4>}> : (tensor<2x2x5x2x4xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5x2x4xbf16>
    %21 = "stablehlo.reshape"(%20) : (tensor<1x2x5x2x4xbf16>) -> tensor<2x5x2x4xbf16>
    %22 = "stablehlo.transpose"(%arg0) <{permutation = array<i64: 0, 2, 3, 1, 4>}> : (tensor<2x2x2x3x4xbf16>) -> tensor<2x2x3x2x4xbf16>
    %23 = "stablehlo.dot_general"(%22, %19) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x2x4xbf16>, tensor<2x5x2x4xbf16>) -> tensor<2x2x3x2x5xf32>
    %24 = stablehlo.constant dense<0x3F000000> : tensor<2x2x3x2x5xf32>
    %25 = stablehlo.multiply %23, %24 : tensor<2x2x3x2x5xf32>
    %26 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x2x5xi32>
    %27 = "stablehlo.broadcast_in_dim"(%arg6) <{broadcast_dimensions = array<i64: 0>}> : (tensor<2xi32>) -> tensor<2x2x5xi32>
    %28 = stablehlo.add %27, %26 : tensor<2x2x5xi32>
    %29 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x2x5xi32>
    %30 = "stablehlo.compare"(%29, %28) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x2x5xi32>, tensor<2x2x5xi32>) -> tensor<2x2x5xi1>
    %31 = "stablehlo.broadcast_in_dim"(%30) <{broadcast_dimensions = array<i64: 0, 3, 4>}> : (tensor<2x2x5xi1>) -> tensor<2x2x3x2x5xi1>
    %32 = stablehlo.constant dense<0xFF800000> : tensor<2x2x3x2x5xf32>
    %33 = "stablehlo.select"(%31, %25, %32) : (tensor<2x2x3x2x5xi1>, tensor<2x2x3x2x5xf32>, tensor<2x2x3x2x5xf32>) -> tensor<2x2x3x2x5xf32>
    %34 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %35 = stablehlo.reduce(%33 init: %34) applies stablehlo.maximum across dimensions = [4] : (tensor<2x2x3x2x5xf32>, tensor<f32>) -> tensor<2x2x3x2xf32>
    %36 = "stablehlo.broadcast_in_dim"(%35) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x2xf32>) -> tensor<2x2x3x2x5xf32>
    %37 = stablehlo.subtract %33, %36 : tensor<2x2x3x2x5xf32>
    %38 = stablehlo.exponential %37 : tensor<2x2x3x2x5xf32>
    %39 = stablehlo.constant dense<0.0> : tensor<f32>
    %40 = stablehlo.reduce(%38 init: %39) applies stablehlo.add across dimensions = [4] : (tensor<2x2x3x2x5xf32>, tensor<f32>) -> tensor<2x2x3x2xf32>
    %41 = "stablehlo.broadcast_in_dim"(%40) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x2x3x2xf32>) -> tensor<2x2x3x2x5xf32>
    %42 = stablehlo.divide %38, %41 : tensor<2x2x3x2x5xf32>
    %43 = "stablehlo.convert"(%42) : (tensor<2x2x3x2x5xf32>) -> tensor<2x2x3x2x5xbf16>
    %44 = "stablehlo.dot_general"(%43, %21) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [4], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x2x3x2x5xbf16>, tensor<2x5x2x4xbf16>) -> tensor<2x2x3x2x4xbf16>
    %45 = "stablehlo.transpose"(%44) <{permutation = array<i64: 0, 3, 1, 2, 4>}> : (tensor<2x2x3x2x4xbf16>) -> tensor<2x2x2x3x4xbf16>
    return %45, %11, %17 : tensor<2x2x2x3x4xbf16>, tensor<2x2x5x2x4xbf16>, tensor<2x2x5x2x4xbf16>
  }
}
