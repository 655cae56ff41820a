// compare/EQ s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/NE s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/LT s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/LE s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/GT s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/GE s32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>, %arg1: tensor<4x5xi32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<4x5xi32>, tensor<4x5xi32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/LT f32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4x5xf32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/GE u32
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>, %arg1: tensor<4x5xui32>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type UNSIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<4x5xui32>, tensor<4x5xui32>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
// compare/NE pred
module @case {
  func.func public @main(%arg0: tensor<4x5xi1>, %arg1: tensor<4x5xi1>) -> (tensor<4x5xi1>) {
    %0 = "stablehlo.compare"(%arg0, %arg1) <{compare_type = #stablehlo<comparison_type UNSIGNED>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<4x5xi1>, tensor<4x5xi1>) -> tensor<4x5xi1>
    return %0 : tensor<4x5xi1>
  }
}
