// convert/f32 to bf16
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xbf16>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xf32>) -> tensor<4x5xbf16>
    return %0 : tensor<4x5xbf16>
  }
}
// convert/bf16 to f32
module @case {
  func.func public @main(%arg0: tensor<4x5xbf16>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xbf16>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// convert/f32 to s32
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xi32>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xf32>) -> tensor<4x5xi32>
    return %0 : tensor<4x5xi32>
  }
}
// convert/s32 to f32
module @case {
  func.func public @main(%arg0: tensor<4x5xi32>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xi32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// convert/pred to f32
module @case {
  func.func public @main(%arg0: tensor<4x5xi1>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xi1>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
// convert/u32 to s64
module @case {
  func.func public @main(%arg0: tensor<4x5xui32>) -> (tensor<4x5xi64>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xui32>) -> tensor<4x5xi64>
    return %0 : tensor<4x5xi64>
  }
}
// convert/gradient
module @case {
  func.func public @main(%arg0: tensor<4x5xf32>) -> (tensor<4x5xf32>) {
    %0 = "stablehlo.convert"(%arg0) : (tensor<4x5xf32>) -> tensor<4x5xf64>
    %1 = "stablehlo.convert"(%0) : (tensor<4x5xf64>) -> tensor<4x5xf32>
    return %1 : tensor<4x5xf32>
  }
}
