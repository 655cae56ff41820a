// cumsum/forward
module @case {
  func.func public @main(%arg0: tensor<3x7xf32>) -> (tensor<3x7xf32>) {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.pad %arg0, %0, low = [0, 1], high = [0, -1], interior = [0, 0] : (tensor<3x7xf32>, tensor<f32>) -> tensor<3x7xf32>
    %2 = stablehlo.add %arg0, %1 : tensor<3x7xf32>
    %3 = stablehlo.pad %2, %0, low = [0, 2], high = [0, -2], interior = [0, 0] : (tensor<3x7xf32>, tensor<f32>) -> tensor<3x7xf32>
    %4 = stablehlo.add %2, %3 : tensor<3x7xf32>
    %5 = stablehlo.pad %4, %0, low = [0, 4], high = [0, -4], interior = [0, 0] : (tensor<3x7xf32>, tensor<f32>) -> tensor<3x7xf32>
    %6 = stablehlo.add %4, %5 : tensor<3x7xf32>
    return %6 : tensor<3x7xf32>
  }
}
// cumsum/options
module @case {
  func.func public @main(%arg0: tensor<5x2xf32>, %arg1: tensor<9xi32>) -> (tensor<5x2xf32>, tensor<5x2xf32>, tensor<5x2xf32>, tensor<9xi32>) {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.pad %arg0, %0, low = [-1, 0], high = [1, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %2 = stablehlo.add %arg0, %1 : tensor<5x2xf32>
    %3 = stablehlo.pad %2, %0, low = [-2, 0], high = [2, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %4 = stablehlo.add %2, %3 : tensor<5x2xf32>
    %5 = stablehlo.pad %4, %0, low = [-4, 0], high = [4, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %6 = stablehlo.add %4, %5 : tensor<5x2xf32>
    %7 = stablehlo.constant dense<0.0> : tensor<f32>
    %8 = stablehlo.pad %arg0, %7, low = [1, 0], high = [-1, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %9 = stablehlo.pad %8, %7, low = [1, 0], high = [-1, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %10 = stablehlo.add %8, %9 : tensor<5x2xf32>
    %11 = stablehlo.pad %10, %7, low = [2, 0], high = [-2, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %12 = stablehlo.add %10, %11 : tensor<5x2xf32>
    %13 = stablehlo.pad %12, %7, low = [4, 0], high = [-4, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %14 = stablehlo.add %12, %13 : tensor<5x2xf32>
    %15 = stablehlo.constant dense<0.0> : tensor<f32>
    %16 = stablehlo.pad %arg0, %15, low = [-1, 0], high = [1, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %17 = stablehlo.pad %16, %15, low = [-1, 0], high = [1, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %18 = stablehlo.add %16, %17 : tensor<5x2xf32>
    %19 = stablehlo.pad %18, %15, low = [-2, 0], high = [2, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %20 = stablehlo.add %18, %19 : tensor<5x2xf32>
    %21 = stablehlo.pad %20, %15, low = [-4, 0], high = [4, 0], interior = [0, 0] : (tensor<5x2xf32>, tensor<f32>) -> tensor<5x2xf32>
    %22 = stablehlo.add %20, %21 : tensor<5x2xf32>
    %23 = stablehlo.constant dense<0> : tensor<i32>
    %24 = stablehlo.pad %arg1, %23, low = [1], high = [-1], interior = [0] : (tensor<9xi32>, tensor<i32>) -> tensor<9xi32>
    %25 = stablehlo.add %arg1, %24 : tensor<9xi32>
    %26 = stablehlo.pad %25, %23, low = [2], high = [-2], interior = [0] : (tensor<9xi32>, tensor<i32>) -> tensor<9xi32>
    %27 = stablehlo.add %25, %26 : tensor<9xi32>
    %28 = stablehlo.pad %27, %23, low = [4], high = [-4], interior = [0] : (tensor<9xi32>, tensor<i32>) -> tensor<9xi32>
    %29 = stablehlo.add %27, %28 : tensor<9xi32>
    %30 = stablehlo.pad %29, %23, low = [8], high = [-8], interior = [0] : (tensor<9xi32>, tensor<i32>) -> tensor<9xi32>
    %31 = stablehlo.add %29, %30 : tensor<9xi32>
    return %6, %14, %22, %31 : tensor<5x2xf32>, tensor<5x2xf32>, tensor<5x2xf32>, tensor<9xi32>
  }
}
