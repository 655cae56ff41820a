// scan/forward
module @case {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<3xf32>) -> (tensor<3xf32>, tensor<4x3xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<0.0> : tensor<4x3xf32>
    %5:3 = stablehlo.while(%2 = %0, %3 = %arg0, %4 = %1) : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    cond {
      %6 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.compare LT, %2, %6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %8 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg1, %2, %8, sizes = [1, 3] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %10 = stablehlo.reshape %9 : (tensor<1x3xf32>) -> tensor<3xf32>
      %11 = stablehlo.multiply %3, %10 : tensor<3xf32>
      %12 = stablehlo.sine %11 : tensor<3xf32>
      %13 = stablehlo.add %12, %arg2 : tensor<3xf32>
      %14 = stablehlo.constant dense<1> : tensor<i32>
      %15 = stablehlo.add %2, %14 : tensor<i32>
      %16 = stablehlo.reshape %11 : (tensor<3xf32>) -> tensor<1x3xf32>
      %17 = stablehlo.constant dense<0> : tensor<i32>
      %18 = stablehlo.dynamic_update_slice %4, %16, %2, %17 : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      stablehlo.return %15, %13, %18 : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    }
    return %5#1, %5#2 : tensor<3xf32>, tensor<4x3xf32>
  }
}
// scan/reverse
module @case {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<3xf32>) -> (tensor<3xf32>, tensor<4x3xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<0.0> : tensor<4x3xf32>
    %5:3 = stablehlo.while(%2 = %0, %3 = %arg0, %4 = %1) : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    cond {
      %6 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.compare LT, %2, %6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %8 = stablehlo.constant dense<3> : tensor<i32>
      %9 = stablehlo.subtract %8, %2 : tensor<i32>
      %10 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_slice %arg1, %9, %10, sizes = [1, 3] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %12 = stablehlo.reshape %11 : (tensor<1x3xf32>) -> tensor<3xf32>
      %13 = stablehlo.multiply %3, %12 : tensor<3xf32>
      %14 = stablehlo.sine %13 : tensor<3xf32>
      %15 = stablehlo.add %14, %arg2 : tensor<3xf32>
      %16 = stablehlo.constant dense<1> : tensor<i32>
      %17 = stablehlo.add %2, %16 : tensor<i32>
      %18 = stablehlo.reshape %13 : (tensor<3xf32>) -> tensor<1x3xf32>
      %19 = stablehlo.constant dense<0> : tensor<i32>
      %20 = stablehlo.dynamic_update_slice %4, %18, %9, %19 : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      stablehlo.return %17, %15, %20 : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    }
    return %5#1, %5#2 : tensor<3xf32>, tensor<4x3xf32>
  }
}
// scan/recompute
module @case {
  func.func public @main(%arg0: tensor<3xf32>, %arg1: tensor<4x3xf32>, %arg2: tensor<3xf32>) -> (tensor<3xf32>, tensor<4x3xf32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<0.0> : tensor<4x3xf32>
    %5:3 = stablehlo.while(%2 = %0, %3 = %arg0, %4 = %1) : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    cond {
      %6 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.compare LT, %2, %6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %8 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg1, %2, %8, sizes = [1, 3] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %10 = stablehlo.reshape %9 : (tensor<1x3xf32>) -> tensor<3xf32>
      %11 = stablehlo.multiply %3, %10 : tensor<3xf32>
      %12 = stablehlo.sine %11 : tensor<3xf32>
      %13 = stablehlo.add %12, %arg2 : tensor<3xf32>
      %14 = stablehlo.constant dense<1> : tensor<i32>
      %15 = stablehlo.add %2, %14 : tensor<i32>
      %16 = stablehlo.reshape %11 : (tensor<3xf32>) -> tensor<1x3xf32>
      %17 = stablehlo.constant dense<0> : tensor<i32>
      %18 = stablehlo.dynamic_update_slice %4, %16, %2, %17 : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      stablehlo.return %15, %13, %18 : tensor<i32>, tensor<3xf32>, tensor<4x3xf32>
    }
    return %5#1, %5#2 : tensor<3xf32>, tensor<4x3xf32>
  }
}
