module @collectives attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x12xf32>, tensor<2x6xf32>, tensor<2x12xf32>) {
    %3 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({ ^bb0(%0: tensor<f32>, %1: tensor<f32>): %2 = stablehlo.add %0, %1 : tensor<f32> stablehlo.return %2 : tensor<f32> }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %7 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({ ^bb0(%4: tensor<f32>, %5: tensor<f32>): %6 = stablehlo.maximum %4, %5 : tensor<f32> stablehlo.return %6 : tensor<f32> }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %8 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<4x6xf32>) -> tensor<4x12xf32>
    %12 = "stablehlo.reduce_scatter"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids, scatter_dimension = 0 : i64}> ({ ^bb0(%9: tensor<f32>, %10: tensor<f32>): %11 = stablehlo.add %9, %10 : tensor<f32> stablehlo.return %11 : tensor<f32> }) : (tensor<4x6xf32>) -> tensor<2x6xf32>
    %13 = "stablehlo.all_to_all"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, concat_dimension = 1 : i64, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<4x6xf32>) -> tensor<2x12xf32>
    return %3, %7, %8, %12, %13 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x12xf32>, tensor<2x6xf32>, tensor<2x12xf32>
  }
}
