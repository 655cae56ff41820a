// reduce/sum_inner
module @case {
  func.func public @main(%arg0: tensor<3x5x2xf32>) -> (tensor<3x2xf32>) {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [1] : (tensor<3x5x2xf32>, tensor<f32>) -> tensor<3x2xf32>
    return %1 : tensor<3x2xf32>
  }
}
// reduce/sum_all_keep_dims
module @case {
  func.func public @main(%arg0: tensor<3x5xf32>) -> (tensor<1x1xf32>) {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
    %2 = "stablehlo.reshape"(%1) : (tensor<f32>) -> tensor<1x1xf32>
    return %2 : tensor<1x1xf32>
  }
}
// reduce/max
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>) -> (tensor<3xf32>, tensor<f32>) {
    %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.maximum across dimensions = [0] : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3 = stablehlo.reduce(%arg0 init: %2) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<f32>
    return %1, %3 : tensor<3xf32>, tensor<f32>
  }
}
// reduce/min
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>) -> (tensor<4x1xf32>) {
    %0 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.minimum across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = "stablehlo.reshape"(%1) : (tensor<4xf32>) -> tensor<4x1xf32>
    return %2 : tensor<4x1xf32>
  }
}
// reduce/prod
module @case {
  func.func public @main(%arg0: tensor<4x3xf32>) -> (tensor<4xf32>) {
    %0 = stablehlo.constant dense<1.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.multiply across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
// reduce/integers
module @case {
  func.func public @main(%arg0: tensor<7x3xi32>, %arg1: tensor<5xui32>) -> (tensor<3xi32>, tensor<7xi32>, tensor<3xi32>, tensor<ui32>, tensor<ui32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [0] : (tensor<7x3xi32>, tensor<i32>) -> tensor<3xi32>
    %2 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %3 = stablehlo.reduce(%arg0 init: %2) applies stablehlo.maximum across dimensions = [1] : (tensor<7x3xi32>, tensor<i32>) -> tensor<7xi32>
    %4 = stablehlo.constant dense<2147483647> : tensor<i32>
    %5 = stablehlo.reduce(%arg0 init: %4) applies stablehlo.minimum across dimensions = [0] : (tensor<7x3xi32>, tensor<i32>) -> tensor<3xi32>
    %6 = stablehlo.constant dense<0> : tensor<ui32>
    %7 = stablehlo.reduce(%arg1 init: %6) applies stablehlo.maximum across dimensions = [0] : (tensor<5xui32>, tensor<ui32>) -> tensor<ui32>
    %8 = stablehlo.constant dense<4294967295> : tensor<ui32>
    %9 = stablehlo.reduce(%arg1 init: %8) applies stablehlo.minimum across dimensions = [0] : (tensor<5xui32>, tensor<ui32>) -> tensor<ui32>
    return %1, %3, %5, %7, %9 : tensor<3xi32>, tensor<7xi32>, tensor<3xi32>, tensor<ui32>, tensor<ui32>
  }
}
// reduce/empty_dim
module @case {
  func.func public @main(%arg0: tensor<2x0xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [1] : (tensor<2x0xi32>, tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.constant dense<1> : tensor<i32>
    %3 = stablehlo.reduce(%arg0 init: %2) applies stablehlo.multiply across dimensions = [1] : (tensor<2x0xi32>, tensor<i32>) -> tensor<2xi32>
    %4 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %5 = stablehlo.reduce(%arg0 init: %4) applies stablehlo.maximum across dimensions = [1] : (tensor<2x0xi32>, tensor<i32>) -> tensor<2xi32>
    %6 = stablehlo.constant dense<2147483647> : tensor<i32>
    %7 = stablehlo.reduce(%arg0 init: %6) applies stablehlo.minimum across dimensions = [1] : (tensor<2x0xi32>, tensor<i32>) -> tensor<2xi32>
    return %1, %3, %5, %7 : tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>
  }
}
// reduce/logical
module @case {
  func.func public @main(%arg0: tensor<5x2xi1>) -> (tensor<5xi1>, tensor<5xi1>) {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.and across dimensions = [1] : (tensor<5x2xi1>, tensor<i1>) -> tensor<5xi1>
    %2 = stablehlo.constant dense<false> : tensor<i1>
    %3 = stablehlo.reduce(%arg0 init: %2) applies stablehlo.or across dimensions = [1] : (tensor<5x2xi1>, tensor<i1>) -> tensor<5xi1>
    return %1, %3 : tensor<5xi1>, tensor<5xi1>
  }
}
// reduce/argmax
module @case {
  func.func public @main(%arg0: tensor<3x6xf32>, %arg1: tensor<6x4xi32>) -> (tensor<3xi32>, tensor<4xi32>) {
    %0 = stablehlo.constant dense<0x7F800000> : tensor<3x6xf32>
    %1 = "stablehlo.compare"(%arg0, %arg0) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<3x6xf32>, tensor<3x6xf32>) -> tensor<3x6xi1>
    %2 = "stablehlo.select"(%1, %0, %arg0) : (tensor<3x6xi1>, tensor<3x6xf32>, tensor<3x6xf32>) -> tensor<3x6xf32>
    %3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.maximum across dimensions = [1] : (tensor<3x6xf32>, tensor<f32>) -> tensor<3xf32>
    %5 = "stablehlo.broadcast_in_dim"(%4) <{broadcast_dimensions = array<i64: 0>}> : (tensor<3xf32>) -> tensor<3x6xf32>
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<3x6xi32>
    %7 = stablehlo.constant dense<5> : tensor<3x6xi32>
    %8 = "stablehlo.compare"(%2, %5) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<3x6xf32>, tensor<3x6xf32>) -> tensor<3x6xi1>
    %9 = "stablehlo.select"(%8, %6, %7) : (tensor<3x6xi1>, tensor<3x6xi32>, tensor<3x6xi32>) -> tensor<3x6xi32>
    %10 = stablehlo.constant dense<2147483647> : tensor<i32>
    %11 = stablehlo.reduce(%9 init: %10) applies stablehlo.minimum across dimensions = [1] : (tensor<3x6xi32>, tensor<i32>) -> tensor<3xi32>
    %12 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %13 = stablehlo.reduce(%arg1 init: %12) applies stablehlo.maximum across dimensions = [0] : (tensor<6x4xi32>, tensor<i32>) -> tensor<4xi32>
    %14 = "stablehlo.broadcast_in_dim"(%13) <{broadcast_dimensions = array<i64: 1>}> : (tensor<4xi32>) -> tensor<6x4xi32>
    %15 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<6x4xi32>
    %16 = stablehlo.constant dense<5> : tensor<6x4xi32>
    %17 = "stablehlo.compare"(%arg1, %14) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<6x4xi32>, tensor<6x4xi32>) -> tensor<6x4xi1>
    %18 = "stablehlo.select"(%17, %15, %16) : (tensor<6x4xi1>, tensor<6x4xi32>, tensor<6x4xi32>) -> tensor<6x4xi32>
    %19 = stablehlo.constant dense<2147483647> : tensor<i32>
    %20 = stablehlo.reduce(%18 init: %19) applies stablehlo.minimum across dimensions = [0] : (tensor<6x4xi32>, tensor<i32>) -> tensor<4xi32>
    return %11, %20 : tensor<3xi32>, tensor<4xi32>
  }
}
// reduce/take_along_last
module @case {
  func.func public @main(%arg0: tensor<2x3x7xf32>, %arg1: tensor<2x3xi32>) -> (tensor<2x3xf32>) {
    %0 = "stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x3x7xi32>
    %1 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x3xi32>) -> tensor<2x3x7xi32>
    %2 = "stablehlo.compare"(%0, %1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2x3x7xi32>, tensor<2x3x7xi32>) -> tensor<2x3x7xi1>
    %3 = stablehlo.constant dense<0.0> : tensor<2x3x7xf32>
    %4 = "stablehlo.select"(%2, %arg0, %3) : (tensor<2x3x7xi1>, tensor<2x3x7xf32>, tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
    %5 = stablehlo.constant dense<0.0> : tensor<f32>
    %6 = stablehlo.reduce(%4 init: %5) applies stablehlo.add across dimensions = [2] : (tensor<2x3x7xf32>, tensor<f32>) -> tensor<2x3xf32>
    return %6 : tensor<2x3xf32>
  }
}
