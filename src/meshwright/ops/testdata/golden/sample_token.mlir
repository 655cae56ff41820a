// sample_token/rows
module @case {
  func.func public @main(%arg0: tensor<4x11xf32>, %arg1: tensor<4xui32>, %arg2: tensor<4xui32>, %arg3: tensor<2xui32>, %arg4: tensor<f32>, %arg5: tensor<f32>) -> (tensor<4xi32>, tensor<4xf32>) {
    %0 = "stablehlo.slice"(%arg3) <{limit_indices = array<i64: 1>, start_indices = array<i64: 0>, strides = array<i64: 1>}> : (tensor<2xui32>) -> tensor<1xui32>
    %1 = "stablehlo.reshape"(%0) : (tensor<1xui32>) -> tensor<ui32>
    %2 = "stablehlo.broadcast_in_dim"(%1) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<4x3xui32>
    %3 = "stablehlo.slice"(%arg3) <{limit_indices = array<i64: 2>, start_indices = array<i64: 1>, strides = array<i64: 1>}> : (tensor<2xui32>) -> tensor<1xui32>
    %4 = "stablehlo.reshape"(%3) : (tensor<1xui32>) -> tensor<ui32>
    %5 = "stablehlo.broadcast_in_dim"(%4) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<4x3xui32>
    %6 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x3xui32>
    %7 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64: 0>}> : (tensor<4xui32>) -> tensor<4x3xui32>
    %8 = "stablehlo.broadcast_in_dim"(%arg2) <{broadcast_dimensions = array<i64: 0>}> : (tensor<4xui32>) -> tensor<4x3xui32>
    %9 = stablehlo.constant dense<7> : tensor<4x3xui32>
    %10 = stablehlo.constant dense<3528531795> : tensor<4x3xui64>
    %11 = stablehlo.constant dense<3449720151> : tensor<4x3xui64>
    %12 = stablehlo.constant dense<2654435769> : tensor<4x3xui32>
    %13 = stablehlo.constant dense<3144134277> : tensor<4x3xui32>
    %14 = stablehlo.constant dense<32> : tensor<4x3xui64>
    %15 = stablehlo.convert %6 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %16 = stablehlo.multiply %15, %10 : tensor<4x3xui64>
    %17 = stablehlo.shift_right_logical %16, %14 : tensor<4x3xui64>
    %18 = stablehlo.convert %17 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %19 = stablehlo.convert %16 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %20 = stablehlo.convert %8 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %21 = stablehlo.multiply %20, %11 : tensor<4x3xui64>
    %22 = stablehlo.shift_right_logical %21, %14 : tensor<4x3xui64>
    %23 = stablehlo.convert %22 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %24 = stablehlo.convert %21 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %25 = stablehlo.xor %23, %7 : tensor<4x3xui32>
    %26 = stablehlo.xor %25, %2 : tensor<4x3xui32>
    %27 = stablehlo.xor %18, %9 : tensor<4x3xui32>
    %28 = stablehlo.xor %27, %5 : tensor<4x3xui32>
    %29 = stablehlo.add %2, %12 : tensor<4x3xui32>
    %30 = stablehlo.add %5, %13 : tensor<4x3xui32>
    %31 = stablehlo.convert %26 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %32 = stablehlo.multiply %31, %10 : tensor<4x3xui64>
    %33 = stablehlo.shift_right_logical %32, %14 : tensor<4x3xui64>
    %34 = stablehlo.convert %33 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %35 = stablehlo.convert %32 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %36 = stablehlo.convert %28 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %37 = stablehlo.multiply %36, %11 : tensor<4x3xui64>
    %38 = stablehlo.shift_right_logical %37, %14 : tensor<4x3xui64>
    %39 = stablehlo.convert %38 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %40 = stablehlo.convert %37 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %41 = stablehlo.xor %39, %24 : tensor<4x3xui32>
    %42 = stablehlo.xor %41, %29 : tensor<4x3xui32>
    %43 = stablehlo.xor %34, %19 : tensor<4x3xui32>
    %44 = stablehlo.xor %43, %30 : tensor<4x3xui32>
    %45 = stablehlo.add %29, %12 : tensor<4x3xui32>
    %46 = stablehlo.add %30, %13 : tensor<4x3xui32>
    %47 = stablehlo.convert %42 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %48 = stablehlo.multiply %47, %10 : tensor<4x3xui64>
    %49 = stablehlo.shift_right_logical %48, %14 : tensor<4x3xui64>
    %50 = stablehlo.convert %49 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %51 = stablehlo.convert %48 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %52 = stablehlo.convert %44 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %53 = stablehlo.multiply %52, %11 : tensor<4x3xui64>
    %54 = stablehlo.shift_right_logical %53, %14 : tensor<4x3xui64>
    %55 = stablehlo.convert %54 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %56 = stablehlo.convert %53 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %57 = stablehlo.xor %55, %40 : tensor<4x3xui32>
    %58 = stablehlo.xor %57, %45 : tensor<4x3xui32>
    %59 = stablehlo.xor %50, %35 : tensor<4x3xui32>
    %60 = stablehlo.xor %59, %46 : tensor<4x3xui32>
    %61 = stablehlo.add %45, %12 : tensor<4x3xui32>
    %62 = stablehlo.add %46, %13 : tensor<4x3xui32>
    %63 = stablehlo.convert %58 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %64 = stablehlo.multiply %63, %10 : tensor<4x3xui64>
    %65 = stablehlo.shift_right_logical %64, %14 : tensor<4x3xui64>
    %66 = stablehlo.convert %65 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %67 = stablehlo.convert %64 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %68 = stablehlo.convert %60 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %69 = stablehlo.multiply %68, %11 : tensor<4x3xui64>
    %70 = stablehlo.shift_right_logical %69, %14 : tensor<4x3xui64>
    %71 = stablehlo.convert %70 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %72 = stablehlo.convert %69 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %73 = stablehlo.xor %71, %56 : tensor<4x3xui32>
    %74 = stablehlo.xor %73, %61 : tensor<4x3xui32>
    %75 = stablehlo.xor %66, %51 : tensor<4x3xui32>
    %76 = stablehlo.xor %75, %62 : tensor<4x3xui32>
    %77 = stablehlo.add %61, %12 : tensor<4x3xui32>
    %78 = stablehlo.add %62, %13 : tensor<4x3xui32>
    %79 = stablehlo.convert %74 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %80 = stablehlo.multiply %79, %10 : tensor<4x3xui64>
    %81 = stablehlo.shift_right_logical %80, %14 : tensor<4x3xui64>
    %82 = stablehlo.convert %81 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %83 = stablehlo.convert %80 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %84 = stablehlo.convert %76 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %85 = stablehlo.multiply %84, %11 : tensor<4x3xui64>
    %86 = stablehlo.shift_right_logical %85, %14 : tensor<4x3xui64>
    %87 = stablehlo.convert %86 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %88 = stablehlo.convert %85 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %89 = stablehlo.xor %87, %72 : tensor<4x3xui32>
    %90 = stablehlo.xor %89, %77 : tensor<4x3xui32>
    %91 = stablehlo.xor %82, %67 : tensor<4x3xui32>
    %92 = stablehlo.xor %91, %78 : tensor<4x3xui32>
    %93 = stablehlo.add %77, %12 : tensor<4x3xui32>
    %94 = stablehlo.add %78, %13 : tensor<4x3xui32>
    %95 = stablehlo.convert %90 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %96 = stablehlo.multiply %95, %10 : tensor<4x3xui64>
    %97 = stablehlo.shift_right_logical %96, %14 : tensor<4x3xui64>
    %98 = stablehlo.convert %97 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %99 = stablehlo.convert %96 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %100 = stablehlo.convert %92 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %101 = stablehlo.multiply %100, %11 : tensor<4x3xui64>
    %102 = stablehlo.shift_right_logical %101, %14 : tensor<4x3xui64>
    %103 = stablehlo.convert %102 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %104 = stablehlo.convert %101 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %105 = stablehlo.xor %103, %88 : tensor<4x3xui32>
    %106 = stablehlo.xor %105, %93 : tensor<4x3xui32>
    %107 = stablehlo.xor %98, %83 : tensor<4x3xui32>
    %108 = stablehlo.xor %107, %94 : tensor<4x3xui32>
    %109 = stablehlo.add %93, %12 : tensor<4x3xui32>
    %110 = stablehlo.add %94, %13 : tensor<4x3xui32>
    %111 = stablehlo.convert %106 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %112 = stablehlo.multiply %111, %10 : tensor<4x3xui64>
    %113 = stablehlo.shift_right_logical %112, %14 : tensor<4x3xui64>
    %114 = stablehlo.convert %113 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %115 = stablehlo.convert %112 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %116 = stablehlo.convert %108 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %117 = stablehlo.multiply %116, %11 : tensor<4x3xui64>
    %118 = stablehlo.shift_right_logical %117, %14 : tensor<4x3xui64>
    %119 = stablehlo.convert %118 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %120 = stablehlo.convert %117 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %121 = stablehlo.xor %119, %104 : tensor<4x3xui32>
    %122 = stablehlo.xor %121, %109 : tensor<4x3xui32>
    %123 = stablehlo.xor %114, %99 : tensor<4x3xui32>
    %124 = stablehlo.xor %123, %110 : tensor<4x3xui32>
    %125 = stablehlo.add %109, %12 : tensor<4x3xui32>
    %126 = stablehlo.add %110, %13 : tensor<4x3xui32>
    %127 = stablehlo.convert %122 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %128 = stablehlo.multiply %127, %10 : tensor<4x3xui64>
    %129 = stablehlo.shift_right_logical %128, %14 : tensor<4x3xui64>
    %130 = stablehlo.convert %129 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %131 = stablehlo.convert %128 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %132 = stablehlo.convert %124 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %133 = stablehlo.multiply %132, %11 : tensor<4x3xui64>
    %134 = stablehlo.shift_right_logical %133, %14 : tensor<4x3xui64>
    %135 = stablehlo.convert %134 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %136 = stablehlo.convert %133 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %137 = stablehlo.xor %135, %120 : tensor<4x3xui32>
    %138 = stablehlo.xor %137, %125 : tensor<4x3xui32>
    %139 = stablehlo.xor %130, %115 : tensor<4x3xui32>
    %140 = stablehlo.xor %139, %126 : tensor<4x3xui32>
    %141 = stablehlo.add %125, %12 : tensor<4x3xui32>
    %142 = stablehlo.add %126, %13 : tensor<4x3xui32>
    %143 = stablehlo.convert %138 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %144 = stablehlo.multiply %143, %10 : tensor<4x3xui64>
    %145 = stablehlo.shift_right_logical %144, %14 : tensor<4x3xui64>
    %146 = stablehlo.convert %145 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %147 = stablehlo.convert %144 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %148 = stablehlo.convert %140 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %149 = stablehlo.multiply %148, %11 : tensor<4x3xui64>
    %150 = stablehlo.shift_right_logical %149, %14 : tensor<4x3xui64>
    %151 = stablehlo.convert %150 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %152 = stablehlo.convert %149 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %153 = stablehlo.xor %151, %136 : tensor<4x3xui32>
    %154 = stablehlo.xor %153, %141 : tensor<4x3xui32>
    %155 = stablehlo.xor %146, %131 : tensor<4x3xui32>
    %156 = stablehlo.xor %155, %142 : tensor<4x3xui32>
    %157 = stablehlo.add %141, %12 : tensor<4x3xui32>
    %158 = stablehlo.add %142, %13 : tensor<4x3xui32>
    %159 = stablehlo.convert %154 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %160 = stablehlo.multiply %159, %10 : tensor<4x3xui64>
    %161 = stablehlo.shift_right_logical %160, %14 : tensor<4x3xui64>
    %162 = stablehlo.convert %161 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %163 = stablehlo.convert %160 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %164 = stablehlo.convert %156 : (tensor<4x3xui32>) -> tensor<4x3xui64>
    %165 = stablehlo.multiply %164, %11 : tensor<4x3xui64>
    %166 = stablehlo.shift_right_logical %165, %14 : tensor<4x3xui64>
    %167 = stablehlo.convert %166 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %168 = stablehlo.convert %165 : (tensor<4x3xui64>) -> tensor<4x3xui32>
    %169 = stablehlo.xor %167, %152 : tensor<4x3xui32>
    %170 = stablehlo.xor %169, %157 : tensor<4x3xui32>
    %171 = stablehlo.xor %162, %147 : tensor<4x3xui32>
    %172 = stablehlo.xor %171, %158 : tensor<4x3xui32>
    %173 = "stablehlo.concatenate"(%170, %168, %172, %163) <{dimension = 1 : i64}> : (tensor<4x3xui32>, tensor<4x3xui32>, tensor<4x3xui32>, tensor<4x3xui32>) -> tensor<4x12xui32>
    %174 = "stablehlo.slice"(%173) <{limit_indices = array<i64: 4, 11>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<4x12xui32>) -> tensor<4x11xui32>
    %175 = stablehlo.constant dense<9> : tensor<4x11xui32>
    %176 = stablehlo.shift_right_logical %174, %175 : tensor<4x11xui32>
    %177 = "stablehlo.convert"(%176) : (tensor<4x11xui32>) -> tensor<4x11xf32>
    %178 = stablehlo.constant dense<0x3F000000> : tensor<4x11xf32>
    %179 = stablehlo.add %177, %178 : tensor<4x11xf32>
    %180 = stablehlo.constant dense<0x34000000> : tensor<4x11xf32>
    %181 = stablehlo.multiply %179, %180 : tensor<4x11xf32>
    %182 = stablehlo.log %181 : tensor<4x11xf32>
    %183 = stablehlo.negate %182 : tensor<4x11xf32>
    %184 = stablehlo.log %183 : tensor<4x11xf32>
    %185 = stablehlo.negate %184 : tensor<4x11xf32>
    %186 = "stablehlo.broadcast_in_dim"(%arg4) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4x11xf32>
    %187 = stablehlo.divide %arg0, %186 : tensor<4x11xf32>
    %188 = stablehlo.add %187, %185 : tensor<4x11xf32>
    %189 = stablehlo.constant dense<0x7F800000> : tensor<4x11xf32>
    %190 = "stablehlo.compare"(%188, %188) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4x11xi1>
    %191 = "stablehlo.select"(%190, %189, %188) : (tensor<4x11xi1>, tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4x11xf32>
    %192 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %193 = stablehlo.reduce(%191 init: %192) applies stablehlo.maximum across dimensions = [1] : (tensor<4x11xf32>, tensor<f32>) -> tensor<4xf32>
    %194 = "stablehlo.broadcast_in_dim"(%193) <{broadcast_dimensions = array<i64: 0>}> : (tensor<4xf32>) -> tensor<4x11xf32>
    %195 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<4x11xi32>
    %196 = stablehlo.constant dense<10> : tensor<4x11xi32>
    %197 = "stablehlo.compare"(%191, %194) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4x11xi1>
    %198 = "stablehlo.select"(%197, %195, %196) : (tensor<4x11xi1>, tensor<4x11xi32>, tensor<4x11xi32>) -> tensor<4x11xi32>
    %199 = stablehlo.constant dense<2147483647> : tensor<i32>
    %200 = stablehlo.reduce(%198 init: %199) applies stablehlo.minimum across dimensions = [1] : (tensor<4x11xi32>, tensor<i32>) -> tensor<4xi32>
    %201 = "stablehlo.broadcast_in_dim"(%arg5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4x11xf32>
    %202 = stablehlo.divide %arg0, %201 : tensor<4x11xf32>
    %203 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %204 = stablehlo.reduce(%202 init: %203) applies stablehlo.maximum across dimensions = [1] : (tensor<4x11xf32>, tensor<f32>) -> tensor<4xf32>
    %205 = "stablehlo.broadcast_in_dim"(%204) <{broadcast_dimensions = array<i64: 0>}> : (tensor<4xf32>) -> tensor<4x11xf32>
    %206 = stablehlo.subtract %202, %205 : tensor<4x11xf32>
    %207 = stablehlo.exponential %206 : tensor<4x11xf32>
    %208 = stablehlo.constant dense<0.0> : tensor<f32>
    %209 = stablehlo.reduce(%207 init: %208) applies stablehlo.add across dimensions = [1] : (tensor<4x11xf32>, tensor<f32>) -> tensor<4xf32>
    %210 = stablehlo.log %209 : tensor<4xf32>
    %211 = "stablehlo.broadcast_in_dim"(%200) <{broadcast_dimensions = array<i64: 0>}> : (tensor<4xi32>) -> tensor<4x11xi32>
    %212 = "stablehlo.compare"(%195, %211) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<4x11xi32>, tensor<4x11xi32>) -> tensor<4x11xi1>
    %213 = stablehlo.constant dense<0.0> : tensor<4x11xf32>
    %214 = "stablehlo.select"(%212, %206, %213) : (tensor<4x11xi1>, tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4x11xf32>
    %215 = stablehlo.constant dense<0.0> : tensor<f32>
    %216 = stablehlo.reduce(%214 init: %215) applies stablehlo.add across dimensions = [1] : (tensor<4x11xf32>, tensor<f32>) -> tensor<4xf32>
    %217 = stablehlo.subtract %216, %210 : tensor<4xf32>
    return %200, %217 : tensor<4xi32>, tensor<4xf32>
  }
}
