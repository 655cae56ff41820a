// sort/ascending
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.sort"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%1: tensor<f32>, %2: tensor<f32>):
      %3 = stablehlo.compare LT, %1, %2, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    }) : (tensor<4x5xf32>) -> (tensor<4x5xf32>)
    return %0 : tensor<4x5xf32>
  }
}
// sort/stable_with_payload
module @case {
  func.func public @main(%arg0: tensor<2x9xi32>, %arg1: tensor<2x9xf32>) -> (tensor<2x9xi32>, tensor<2x9xf32>, tensor<2x9xi32>) {
    %0:2 = "stablehlo.sort"(%arg0, %arg1) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%1: tensor<i32>, %2: tensor<i32>, %3: tensor<f32>, %4: tensor<f32>):
      %5 = stablehlo.compare GT, %1, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    }) : (tensor<2x9xi32>, tensor<2x9xf32>) -> (tensor<2x9xi32>, tensor<2x9xf32>)
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x9xi32>
    %7:2 = "stablehlo.sort"(%arg0, %6) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%8: tensor<i32>, %9: tensor<i32>, %10: tensor<i32>, %11: tensor<i32>):
      %12 = stablehlo.compare LT, %8, %9, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %12 : tensor<i1>
    }) : (tensor<2x9xi32>, tensor<2x9xi32>) -> (tensor<2x9xi32>, tensor<2x9xi32>)
    return %0#0, %0#1, %7#1 : tensor<2x9xi32>, tensor<2x9xf32>, tensor<2x9xi32>
  }
}
