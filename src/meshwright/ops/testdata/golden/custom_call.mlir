module {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>, tensor<2x3xf32>) {
    %0:2 = "stablehlo.custom_call"(%arg0, %arg1) <{api_version = 4 : i32, backend_config = {causal = true, eps = 9.9999999999999995e-07 : f64, heads = 4 : i64, kind = "a\22\0A", sizes = array<i64: 1, 2>, scales = array<f64: 1.0000000000000001e-01>}, output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], call_target_name = "mw.example", has_side_effect = false, operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>]}> : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>)
    %1 = "stablehlo.custom_call"(%arg0) <{api_version = 4 : i32, backend_config = {}, output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], call_target_name = "mw.one", has_side_effect = false, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0#0, %0#1, %1 : tensor<2x3xf32>, tensor<f32>, tensor<2x3xf32>
  }
}
