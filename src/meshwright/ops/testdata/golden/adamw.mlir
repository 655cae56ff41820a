// adamw/f32
module @case {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x5xf32>, %arg3: tensor<3x5xf32>, %arg4: tensor<f32>, %arg5: tensor<f32>, %arg6: tensor<f32>, %arg7: tensor<f32>, %arg8: tensor<f32>, %arg9: tensor<i1>) -> (tensor<3x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg7) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %1 = stablehlo.multiply %arg3, %0 : tensor<3x5xf32>
    %2 = "stablehlo.broadcast_in_dim"(%arg8) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<3x5xf32>
    %4 = stablehlo.constant dense<0x3E000000> : tensor<3x5xf32>
    %5 = stablehlo.multiply %3, %4 : tensor<3x5xf32>
    %6 = stablehlo.constant dense<0x3F600000> : tensor<3x5xf32>
    %7 = stablehlo.multiply %arg1, %6 : tensor<3x5xf32>
    %8 = stablehlo.add %7, %5 : tensor<3x5xf32>
    %9 = stablehlo.multiply %3, %3 : tensor<3x5xf32>
    %10 = stablehlo.constant dense<0x3E800000> : tensor<3x5xf32>
    %11 = stablehlo.multiply %9, %10 : tensor<3x5xf32>
    %12 = stablehlo.constant dense<0x3F400000> : tensor<3x5xf32>
    %13 = stablehlo.multiply %arg2, %12 : tensor<3x5xf32>
    %14 = stablehlo.add %13, %11 : tensor<3x5xf32>
    %15 = "stablehlo.broadcast_in_dim"(%arg6) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %16 = stablehlo.divide %14, %15 : tensor<3x5xf32>
    %17 = stablehlo.sqrt %16 : tensor<3x5xf32>
    %18 = stablehlo.add %17, %4 : tensor<3x5xf32>
    %19 = "stablehlo.broadcast_in_dim"(%arg5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %20 = stablehlo.divide %8, %19 : tensor<3x5xf32>
    %21 = stablehlo.divide %20, %18 : tensor<3x5xf32>
    %22 = stablehlo.constant dense<0x3F000000> : tensor<3x5xf32>
    %23 = stablehlo.multiply %arg0, %22 : tensor<3x5xf32>
    %24 = stablehlo.add %21, %23 : tensor<3x5xf32>
    %25 = "stablehlo.broadcast_in_dim"(%arg4) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %26 = stablehlo.multiply %24, %25 : tensor<3x5xf32>
    %27 = stablehlo.subtract %arg0, %26 : tensor<3x5xf32>
    %28 = "stablehlo.select"(%arg9, %27, %arg0) : (tensor<i1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %29 = "stablehlo.select"(%arg9, %8, %arg1) : (tensor<i1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %30 = "stablehlo.select"(%arg9, %14, %arg2) : (tensor<i1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    return %28, %29, %30 : tensor<3x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>
  }
}
// adamw/bf16
module @case {
  func.func public @main(%arg0: tensor<3x5xbf16>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x5xf32>, %arg3: tensor<3x5xf32>, %arg4: tensor<f32>, %arg5: tensor<f32>, %arg6: tensor<f32>, %arg7: tensor<f32>, %arg8: tensor<f32>, %arg9: tensor<i1>) -> (tensor<3x5xbf16>, tensor<3x5xf32>, tensor<3x5xf32>) {
    %0 = "stablehlo.broadcast_in_dim"(%arg7) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %1 = stablehlo.multiply %arg3, %0 : tensor<3x5xf32>
    %2 = "stablehlo.broadcast_in_dim"(%arg8) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<3x5xf32>
    %4 = "stablehlo.convert"(%arg0) : (tensor<3x5xbf16>) -> tensor<3x5xf32>
    %5 = stablehlo.constant dense<0x3E000000> : tensor<3x5xf32>
    %6 = stablehlo.multiply %3, %5 : tensor<3x5xf32>
    %7 = stablehlo.constant dense<0x3F600000> : tensor<3x5xf32>
    %8 = stablehlo.multiply %arg1, %7 : tensor<3x5xf32>
    %9 = stablehlo.add %8, %6 : tensor<3x5xf32>
    %10 = stablehlo.multiply %3, %3 : tensor<3x5xf32>
    %11 = stablehlo.constant dense<0x3E800000> : tensor<3x5xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<3x5xf32>
    %13 = stablehlo.constant dense<0x3F400000> : tensor<3x5xf32>
    %14 = stablehlo.multiply %arg2, %13 : tensor<3x5xf32>
    %15 = stablehlo.add %14, %12 : tensor<3x5xf32>
    %16 = "stablehlo.broadcast_in_dim"(%arg6) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %17 = stablehlo.divide %15, %16 : tensor<3x5xf32>
    %18 = stablehlo.sqrt %17 : tensor<3x5xf32>
    %19 = stablehlo.add %18, %5 : tensor<3x5xf32>
    %20 = "stablehlo.broadcast_in_dim"(%arg5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %21 = stablehlo.divide %9, %20 : tensor<3x5xf32>
    %22 = stablehlo.divide %21, %19 : tensor<3x5xf32>
    %23 = "stablehlo.broadcast_in_dim"(%arg4) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x5xf32>
    %24 = stablehlo.multiply %22, %23 : tensor<3x5xf32>
    %25 = stablehlo.subtract %4, %24 : tensor<3x5xf32>
    %26 = "stablehlo.convert"(%25) : (tensor<3x5xf32>) -> tensor<3x5xbf16>
    %27 = "stablehlo.select"(%arg9, %26, %arg0) : (tensor<i1>, tensor<3x5xbf16>, tensor<3x5xbf16>) -> tensor<3x5xbf16>
    %28 = "stablehlo.select"(%arg9, %9, %arg1) : (tensor<i1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %29 = "stablehlo.select"(%arg9, %15, %arg2) : (tensor<i1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    return %27, %28, %29 : tensor<3x5xbf16>, tensor<3x5xf32>, tensor<3x5xf32>
  }
}
