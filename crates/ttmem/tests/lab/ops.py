"""Ops of every kind that stock ttnn runs on mock chips. OPS: by name, a function of the device; MESH_OPS: those that need
several chips.

All of OPS run on n150 and p150, with 0.81.1 and 0.76.0; with 0.81.1 also OPS and MESH_OPS on p150x8 as one row. Convolutions
and pools need a device with `l1_small_size`, MESH_OPS a fabric. On Wormhole boards with remote chips the runtime refuses many:
there its mesh and its chips disagree about the grid.
"""
import ttnn

TILE, RM = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
BF16 = ttnn.bfloat16


def z(d, *shape, dtype=BF16, layout=TILE, mem=DRAM):
    return ttnn.zeros(shape, dtype=dtype, layout=layout, device=d, memory_config=mem)


def grid(x, y):
    return ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))})


def sharded(shape, x, y, how):
    return ttnn.create_sharded_memory_config(
        shape=shape, core_grid=ttnn.CoreGrid(x=x, y=y), strategy=how, orientation=ttnn.ShardOrientation.ROW_MAJOR
    )


H, W, B = ttnn.ShardStrategy.HEIGHT, ttnn.ShardStrategy.WIDTH, ttnn.ShardStrategy.BLOCK


def mm_reuse(d):
    cfg = ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(2, 2), in0_block_w=2, out_subblock_h=1, out_subblock_w=2, per_core_M=2, per_core_N=2
    )
    a = z(d, 4, 1, 64, 64)
    return ttnn.matmul(a, z(d, 4, 1, 64, 64), program_config=cfg)


def mm_mcast2d(d):
    cfg = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(4, 4), in0_block_w=2, out_subblock_h=1, out_subblock_w=2,
        per_core_M=2, per_core_N=2, transpose_mcast=False, fused_activation=None,
    )
    return ttnn.matmul(z(d, 256, 256), z(d, 256, 256), program_config=cfg)


def mm_mcast1d(d, mcast_in0=True):
    cfg = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 1), in0_block_w=2, out_subblock_h=1, out_subblock_w=1,
        per_core_M=1, per_core_N=1 if mcast_in0 else 8, fuse_batch=True, fused_activation=None, mcast_in0=mcast_in0,
    )
    if mcast_in0:
        return ttnn.matmul(z(d, 32, 256), z(d, 256, 256), program_config=cfg)
    return ttnn.matmul(z(d, 256, 256), z(d, 256, 256), program_config=cfg)


def mm_sharded_1d(d):
    mem = sharded((32, 512), 8, 1, W)
    cfg = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 1), in0_block_w=2, out_subblock_h=1, out_subblock_w=2,
        per_core_M=1, per_core_N=2, fuse_batch=True, fused_activation=None, mcast_in0=True,
    )
    a = ttnn.to_memory_config(z(d, 32, 512), mem)
    return ttnn.matmul(a, z(d, 512, 512), program_config=cfg, memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG)


def conv2d(d, kernel=3, ch=32):
    w = ttnn.zeros((ch, ch, kernel, kernel), dtype=BF16, layout=RM)  # on the host
    x = z(d, 1, 1, 16 * 16, ch, layout=RM)
    return ttnn.conv2d(
        input_tensor=x, weight_tensor=w, in_channels=ch, out_channels=ch, device=d, kernel_size=(kernel, kernel),
        stride=(1, 1), padding=(kernel // 2, kernel // 2), batch_size=1, input_height=16, input_width=16,
    )


def max_pool(d):
    return ttnn.max_pool2d(z(d, 1, 1, 16 * 16, 32, layout=RM), 1, 16, 16, 32, [2, 2], [2, 2], [0, 0], [1, 1])


def sharded_eltwise(d, how, shape, x, y):
    mem = sharded(shape, x, y, how)
    # Two tensors: views of one would overlap.
    return ttnn.add(z(d, *shape, mem=mem), z(d, *shape, mem=mem), memory_config=mem)


def sharded_softmax(d):
    return ttnn.softmax(z(d, 256, 256, mem=sharded((256, 256), 4, 1, H)), dim=-1)


def sharded_layer_norm(d):
    mem = sharded((64, 256), 4, 2, B)
    cfg = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(4, 2), subblock_w=2, block_h=1, block_w=2, inplace=False
    )
    return ttnn.layer_norm(z(d, 64, 256, mem=mem), program_config=cfg, memory_config=mem)


OPS = {
    # eltwise
    "add": lambda d: ttnn.add(z(d, 256, 256), z(d, 256, 256)),
    "add_big": lambda d: ttnn.add(z(d, 1024, 1024), z(d, 1024, 1024)),
    "add_l1": lambda d: ttnn.add(z(d, 256, 256, mem=L1), z(d, 256, 256, mem=L1), memory_config=L1),
    "add_scalar": lambda d: ttnn.add(z(d, 64, 64), 2.0),
    "mul_bcast": lambda d: ttnn.multiply(z(d, 1, 1, 64, 64), z(d, 1, 1, 1, 64)),
    "relu": lambda d: ttnn.relu(z(d, 128, 128)),
    "gelu": lambda d: ttnn.gelu(z(d, 128, 128)),
    "exp_f32": lambda d: ttnn.exp(z(d, 64, 64, dtype=ttnn.float32)),
    "where": lambda d: ttnn.where(z(d, 64, 64), z(d, 64, 64), z(d, 64, 64)),
    "typecast": lambda d: ttnn.typecast(z(d, 64, 64), ttnn.float32),
    "typecast_bfp8": lambda d: ttnn.typecast(z(d, 64, 64), ttnn.bfloat8_b),
    # sharded eltwise: globally allocated CBs
    "add_height_sharded": lambda d: sharded_eltwise(d, H, (256, 64), 4, 2),
    "add_width_sharded": lambda d: sharded_eltwise(d, W, (64, 256), 4, 2),
    "add_block_sharded": lambda d: sharded_eltwise(d, B, (256, 256), 4, 4),
    "relu_sharded": lambda d: ttnn.relu(z(d, 256, 64, mem=sharded((256, 64), 4, 2, H))),
    # matmul
    "matmul": lambda d: ttnn.matmul(z(d, 256, 256), z(d, 256, 256)),
    "matmul_big": lambda d: ttnn.matmul(z(d, 1024, 512), z(d, 512, 1024)),
    "matmul_batched": lambda d: ttnn.matmul(z(d, 4, 64, 64), z(d, 4, 64, 64)),
    "matmul_reuse": mm_reuse,
    "matmul_mcast_2d": mm_mcast2d,
    "matmul_mcast_1d_in0": mm_mcast1d,
    "matmul_mcast_1d_in1": lambda d: mm_mcast1d(d, False),
    "matmul_sharded_1d": mm_sharded_1d,
    "linear_bias": lambda d: ttnn.linear(z(d, 64, 128), z(d, 128, 256), bias=z(d, 1, 256), activation="relu"),
    # reductions
    "sum_w": lambda d: ttnn.sum(z(d, 64, 256), dim=-1),
    "sum_h": lambda d: ttnn.sum(z(d, 256, 64), dim=-2),
    "mean": lambda d: ttnn.mean(z(d, 64, 256), dim=-1),
    "max": lambda d: ttnn.max(z(d, 64, 256), dim=-1),
    "argmax": lambda d: ttnn.argmax(z(d, 1, 1, 32, 64, layout=RM), dim=-1),
    "topk": lambda d: ttnn.topk(z(d, 1, 1, 32, 64), 32, dim=-1),
    "topk_multicore": lambda d: ttnn.topk(z(d, 1, 1, 32, 8192), 32, dim=-1),
    "cumsum": lambda d: ttnn.cumsum(z(d, 1, 1, 64, 64), dim=0),
    # norms, softmax
    "softmax": lambda d: ttnn.softmax(z(d, 64, 256), dim=-1),
    "softmax_sharded": sharded_softmax,
    "layer_norm": lambda d: ttnn.layer_norm(z(d, 64, 256)),
    "layer_norm_weights": lambda d: ttnn.layer_norm(z(d, 64, 256), weight=z(d, 256), bias=z(d, 256)),
    "layer_norm_sharded": sharded_layer_norm,
    "rms_norm": lambda d: ttnn.rms_norm(z(d, 64, 256)),
    # convolution, pool
    "conv2d_3x3": conv2d,
    "conv2d_1x1": lambda d: conv2d(d, 1),
    "max_pool2d": max_pool,
    "upsample": lambda d: ttnn.upsample(z(d, 1, 8, 8, 32, layout=RM), 2),
    # data movement
    "transpose_wh": lambda d: ttnn.transpose(z(d, 1, 1, 64, 128), -2, -1),
    "transpose_hc": lambda d: ttnn.transpose(z(d, 1, 32, 32, 64), 1, 2),
    "permute": lambda d: ttnn.permute(z(d, 1, 2, 64, 64), (0, 2, 1, 3)),
    "concat": lambda d: ttnn.concat([z(d, 64, 64), z(d, 64, 64)], dim=0),
    "slice": lambda d: ttnn.slice(z(d, 128, 128), [0, 0], [64, 64]),
    "slice_rm": lambda d: ttnn.slice(z(d, 128, 128, layout=RM), [1, 0], [65, 64]),
    "pad": lambda d: ttnn.pad(z(d, 1, 1, 64, 64, layout=RM), [(0, 0), (0, 0), (0, 32), (0, 32)], 0.0),
    "reshape": lambda d: ttnn.reshape(z(d, 64, 128), (128, 64)),
    "repeat": lambda d: ttnn.repeat(z(d, 1, 1, 32, 64), ttnn.Shape([1, 1, 2, 1])),
    "tilize": lambda d: ttnn.tilize(z(d, 64, 64, layout=RM), use_multicore=True),
    "tilize_padding": lambda d: ttnn.tilize_with_zero_padding(z(d, 1, 1, 30, 60, layout=RM)),
    "untilize": lambda d: ttnn.untilize(z(d, 64, 64), use_multicore=True),
    "to_layout": lambda d: ttnn.to_layout(z(d, 50, 50, layout=RM), TILE),
    "embedding": lambda d: ttnn.embedding(z(d, 1, 32, dtype=ttnn.uint32, layout=RM), z(d, 128, 64, layout=RM)),
    "interleaved_to_sharded": lambda d: ttnn.interleaved_to_sharded(z(d, 256, 64), sharded((256, 64), 4, 2, H)),
    "sharded_to_interleaved": lambda d: ttnn.sharded_to_interleaved(z(d, 256, 64, mem=sharded((256, 64), 4, 2, H)), DRAM),
    "reshard": lambda d: ttnn.reshard(z(d, 256, 64, mem=sharded((256, 64), 4, 2, H)), sharded((256, 64), 2, 2, H)),
    "clone": lambda d: ttnn.clone(z(d, 64, 64)),
    "copy": lambda d: ttnn.copy(z(d, 64, 64), z(d, 64, 64)),
    "full_like": lambda d: ttnn.full_like(z(d, 64, 64), 1.0),
    "arange": lambda d: ttnn.arange(0, 64, 1, dtype=BF16, device=d),
    "fill_pad": lambda d: ttnn.fill_implicit_tile_padding(z(d, 50, 50), 0.0),
    "sort": lambda d: ttnn.sort(z(d, 1, 1, 32, 64), dim=-1),
    "gather": lambda d: ttnn.gather(z(d, 1, 1, 32, 64), 3, z(d, 1, 1, 32, 32, dtype=ttnn.uint32)),
    "scatter": lambda d: ttnn.scatter(z(d, 1, 1, 32, 64), 3, z(d, 1, 1, 32, 32, dtype=ttnn.int32), z(d, 1, 1, 32, 32)),
    # transformer
    "sdpa": lambda d: ttnn.transformer.scaled_dot_product_attention(z(d, 1, 2, 64, 64), z(d, 1, 2, 64, 64), z(d, 1, 2, 64, 64), is_causal=True),
    "concat_heads": lambda d: ttnn.transformer.concatenate_heads(z(d, 1, 4, 64, 64)),
    "split_qkv": lambda d: ttnn.transformer.split_query_key_value_and_split_heads(z(d, 1, 64, 384), num_heads=2),
    "rotary": lambda d: ttnn.experimental.rotary_embedding(z(d, 1, 1, 64, 64), z(d, 1, 1, 64, 64), z(d, 1, 1, 64, 64)),
    "moreh_sum": lambda d: ttnn.operations.moreh.sum(z(d, 1, 1, 64, 64), dim=3),
    "fill_cache": lambda d: ttnn.fill_cache(z(d, 1, 1, 64, 64), z(d, 1, 1, 32, 64), 0),
    "bernoulli": lambda d: ttnn.bernoulli(z(d, 64, 64)),
    "rand": lambda d: ttnn.rand((64, 64), device=d, dtype=BF16, layout=TILE),
}

MESH_OPS = {
    "all_gather": lambda d: ttnn.all_gather(z(d, 1, 1, 32, 64), dim=3, num_links=1, topology=ttnn.Topology.Linear),
    "reduce_scatter": lambda d: ttnn.reduce_scatter(z(d, 1, 1, 32, 512), dim=3, num_links=1, topology=ttnn.Topology.Linear),
    "all_reduce": lambda d: ttnn.all_reduce(z(d, 1, 1, 32, 512)),
    "all_broadcast": lambda d: ttnn.all_broadcast(z(d, 1, 1, 32, 64), num_links=1, topology=ttnn.Topology.Linear),
    "mesh_partition": lambda d: ttnn.mesh_partition(z(d, 1, 1, 32, 512), dim=3),
}
