"""More ops of stock ttnn: MORE_OPS, by name, a function of the device. `cargo xtask programs` compares the programs of all of
them, CI those of SHORT.

A release or a mock chip may refuse some of them; these are listed with the runtime's reason.
"""
import ttnn

from generic_ops import GENERIC
from ops import B, BF16, DRAM, H, L1, RM, TILE, W, grid, sharded, z

F32, BFP8, BFP4 = ttnn.float32, ttnn.bfloat8_b, ttnn.bfloat4_b
U32, U16, I32 = ttnn.uint32, ttnn.uint16, ttnn.int32
ROWS = ttnn.ShardOrientation.ROW_MAJOR


def on_cores(cores, shape, how=ttnn.TensorMemoryLayout.HEIGHT_SHARDED):
    """A memory configuration with one shard of this shape on each core."""
    return ttnn.MemoryConfig(how, ttnn.BufferType.L1, ttnn.ShardSpec(cores, shape, ROWS))


# Attention and caches

sdpa = ttnn.transformer.scaled_dot_product_attention
decode = ttnn.transformer.scaled_dot_product_attention_decode


def sdpa_configured(d):
    config = ttnn.SDPAProgramConfig(compute_with_storage_grid_size=(4, 4), q_chunk_size=64, k_chunk_size=64, exp_approx_mode=False)
    return sdpa(z(d, 1, 4, 256, 64), z(d, 1, 2, 256, 64), z(d, 1, 2, 256, 64), is_causal=True, program_config=config)


def paged_sdpa(d):
    k, v = z(d, 16, 2, 32, 64), z(d, 16, 2, 32, 64)
    table, at = z(d, 1, 16, dtype=I32, layout=RM), z(d, 1, dtype=I32, layout=RM)
    return ttnn.transformer.paged_scaled_dot_product_attention_decode(z(d, 1, 1, 32, 64), k, v, table, cur_pos_tensor=at)


def user_shards(d, users, heads, width):
    mem = on_cores(ttnn.num_cores_to_corerangeset(users, ttnn.CoreCoord(8, 8), True), (heads, width))
    return z(d, 1, users, heads, width, mem=mem)


def paged_update(d):
    cache, at = z(d, 8, 1, 64, 64), z(d, 8, dtype=I32, layout=RM)
    ttnn.experimental.paged_update_cache(cache, user_shards(d, 8, 32, 64), update_idxs_tensor=at)
    return cache


def paged_update_table(d):
    cache, at = z(d, 16, 1, 32, 64), z(d, 8, dtype=I32, layout=RM)
    table = z(d, 8, 2, dtype=I32, layout=RM)
    ttnn.experimental.paged_update_cache(cache, user_shards(d, 8, 32, 64), update_idxs_tensor=at, page_table=table)
    return cache


def paged_fill(d):
    cache, table = z(d, 16, 1, 32, 64), z(d, 1, 4, dtype=I32, layout=RM)
    return ttnn.experimental.paged_fill_cache(cache, z(d, 1, 1, 128, 64), table, batch_idx=0)


def rotary_decode(d):
    cores = grid(8, 1)
    x = z(d, 1, 8, 32, 64, mem=on_cores(cores, (32, 64)))
    cos, sin = (z(d, 1, 8, 32, 64, mem=on_cores(cores, (32, 64))) for _ in "cs")
    matrix = z(d, 1, 1, 256, 32, mem=on_cores(cores, (32, 32)))
    return ttnn.experimental.rotary_embedding_llama(x, cos, sin, matrix, is_decode_mode=True)


def create_heads_decode(d):
    x = z(d, 1, 1, 32, 768, mem=sharded((32, 768), 8, 1, W))
    out = on_cores(grid(8, 4), (32, 64))
    return ttnn.experimental.nlp_create_qkv_heads_decode(x, num_heads=8, num_kv_heads=2, memory_config=out)


def concat_heads_decode(d):
    return ttnn.experimental.nlp_concat_heads_decode(user_shards(d, 8, 32, 64), num_heads=8)


ATTENTION = {
    "sdpa_not_causal": lambda d: sdpa(z(d, 1, 4, 128, 64), z(d, 1, 4, 128, 64), z(d, 1, 4, 128, 64), is_causal=False),
    "sdpa_grouped": lambda d: sdpa(z(d, 2, 8, 128, 64), z(d, 2, 2, 128, 64), z(d, 2, 2, 128, 64), is_causal=True),
    "sdpa_mask": lambda d: sdpa(z(d, 1, 2, 128, 64), z(d, 1, 2, 128, 64), z(d, 1, 2, 128, 64), attn_mask=z(d, 1, 1, 128, 128), is_causal=False),
    "sdpa_configured": sdpa_configured,
    "sdpa_bfp8": lambda d: sdpa(*(z(d, 1, 2, 128, 128, dtype=BFP8) for _ in "qkv"), is_causal=True),
    "sdpa_joint": lambda d: ttnn.transformer.joint_scaled_dot_product_attention(
        *(z(d, 1, 2, 128, 64) for _ in "qkv"), *(z(d, 1, 2, 64, 64) for _ in "qkv"), joint_strategy="rear",
        program_config=ttnn.SDPAProgramConfig(compute_with_storage_grid_size=(4, 4), q_chunk_size=64, k_chunk_size=64)),
    "sdpa_decode": lambda d: decode(z(d, 1, 8, 32, 64), z(d, 8, 1, 128, 64), z(d, 8, 1, 128, 64), cur_pos=[3] * 8),
    "sdpa_decode_tensor": lambda d: decode(z(d, 1, 4, 32, 64), z(d, 4, 2, 256, 64), z(d, 4, 2, 256, 64), cur_pos_tensor=z(d, 4, dtype=I32, layout=RM)),
    "sdpa_decode_paged": paged_sdpa,
    "sdpa_chunked": lambda d: ttnn.transformer.chunked_scaled_dot_product_attention(z(d, 1, 2, 64, 64), z(d, 8, 2, 64, 64), z(d, 8, 2, 64, 64), z(d, 1, 8, dtype=I32, layout=RM), 64),
    "mla_decode": lambda d: ttnn.transformer.flash_multi_latent_attention_decode(z(d, 1, 4, 32, 96), z(d, 4, 1, 128, 96), head_dim_v=64, cur_pos_tensor=z(d, 4, dtype=I32, layout=RM)),
    "mla_prefill": lambda d: ttnn.transformer.flash_mla_prefill(z(d, 1, 4, 128, 96), z(d, 1, 1, 128, 96), head_dim_v=64),
    "update_cache": lambda d: ttnn.update_cache(z(d, 32, 1, 64, 64), z(d, 1, 1, 32, 64), 0),
    "fill_cache_batch": lambda d: ttnn.fill_cache(z(d, 4, 2, 128, 64), z(d, 1, 2, 64, 64), 1),
    "paged_update_cache": paged_update,
    "paged_update_cache_table": paged_update_table,
    "paged_fill_cache": paged_fill,
    "rotary_llama": lambda d: ttnn.experimental.rotary_embedding_llama(z(d, 1, 4, 128, 64), z(d, 1, 1, 128, 64), z(d, 1, 1, 128, 64), z(d, 1, 1, 32, 32)),
    "rotary_llama_decode": rotary_decode,
    "rotary_token": lambda d: ttnn.experimental.rotary_embedding(z(d, 1, 1, 32, 64), z(d, 1, 1, 64, 64), z(d, 1, 1, 64, 64), 3),
    "rotary_hf": lambda d: ttnn.experimental.rotary_embedding_hf(z(d, 1, 4, 128, 64), z(d, 1, 1, 128, 64), z(d, 1, 1, 128, 64)),
    "rotate_half": lambda d: ttnn.experimental.rotate_half(z(d, 1, 1, 128, 64)),
    "create_qkv_heads": lambda d: ttnn.experimental.nlp_create_qkv_heads(z(d, 1, 1, 128, 768), num_heads=8, num_kv_heads=2, transpose_k_heads=False),
    "create_qkv_heads_transposed": lambda d: ttnn.experimental.nlp_create_qkv_heads(z(d, 1, 1, 128, 1536), num_heads=8, num_kv_heads=8, transpose_k_heads=True),
    "create_qkv_heads_falcon": lambda d: ttnn.experimental.nlp_create_qkv_heads_falcon7b(z(d, 1, 1, 128, 4672)),
    "create_qkv_heads_decode": create_heads_decode,
    "nlp_concat_heads": lambda d: ttnn.experimental.nlp_concat_heads(z(d, 1, 8, 128, 64)),
    "concat_heads_decode": concat_heads_decode,
    "attention_softmax": lambda d: ttnn.transformer.attention_softmax(z(d, 1, 4, 64, 64), head_size=64, attention_mask=z(d, 1, 1, 1, 64)),
    "scale_mask_softmax": lambda d: ttnn.scale_mask_softmax(z(d, 1, 4, 64, 64), 0.5, z(d, 1, 1, 1, 64)),
    "scale_mask_softmax_in_place": lambda d: ttnn.scale_mask_softmax_in_place(z(d, 1, 4, 64, 64), 0.5, z(d, 1, 1, 64, 64)),
    "softmax_in_place": lambda d: ttnn.softmax_in_place(z(d, 1, 1, 64, 256)),
    "attn_matmul": lambda d: ttnn.experimental.attn_matmul(z(d, 1, 8, 32, 64), z(d, 32, 1, 64, 128), compute_with_storage_grid_size=ttnn.CoreCoord(8, 8)),
    "group_attn_matmul": lambda d: ttnn.experimental.group_attn_matmul(z(d, 1, 8, 32, 64), z(d, 32, 2, 64, 128), compute_with_storage_grid_size=ttnn.CoreCoord(8, 8)),
    "kv_cache_load_slice": lambda d: ttnn.experimental.nlp_kv_cache_load_slice(z(d, 1, 8, 128, 64), seq_len_start=0, seq_len_end=64),
}

# Matmul


def mm_sharded_2d(d):
    mem = sharded((256, 256), 4, 4, B)
    config = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(4, 4), in0_block_w=1, out_subblock_h=1, out_subblock_w=2, per_core_M=2, per_core_N=2,
        transpose_mcast=False, fused_activation=None,
    )
    return ttnn.matmul(z(d, 256, 256, mem=mem), z(d, 256, 256), program_config=config, memory_config=ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG)


def mm_height_sharded(d):
    config = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 1), in0_block_w=4, out_subblock_h=1, out_subblock_w=4, per_core_M=1, per_core_N=4,
        fuse_batch=True, fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.GELU, True), mcast_in0=False,
    )
    x = z(d, 256, 128, mem=sharded((256, 128), 8, 1, H))
    return ttnn.linear(x, z(d, 128, 128), bias=z(d, 1, 128), program_config=config, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)


def sparse_matmul(d):
    config = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(4, 1), in0_block_w=1, out_subblock_h=1, out_subblock_w=1, per_core_M=1, per_core_N=1,
        fuse_batch=False, fused_activation=None, mcast_in0=True,
    )
    sparsity = z(d, 1, 1, 1, 4, layout=RM)
    return ttnn.sparse_matmul(z(d, 1, 1, 32, 64), z(d, 1, 4, 64, 128), sparsity=sparsity, nnz=2, program_config=config)


def dram_sharded_matmul(d):
    banks = d.dram_grid_size().x
    width = 32 * banks
    spec = ttnn.ShardSpec(grid(banks, 1), (256, 32), ROWS)
    weights = z(d, 256, width, mem=ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, spec))
    config = ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(in0_block_w=1, per_core_M=1, per_core_N=banks // 4, fused_activation=None)
    x = z(d, 32, 256, mem=sharded((32, 256), 4, 1, W))
    return ttnn.matmul(x, weights, program_config=config, memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG)


MATMUL = {
    "matmul_bfp8": lambda d: ttnn.matmul(z(d, 256, 256, dtype=BFP8), z(d, 256, 512, dtype=BFP8)),
    "matmul_bfp4_weights": lambda d: ttnn.matmul(z(d, 128, 256), z(d, 256, 256, dtype=BFP4)),
    "matmul_f32": lambda d: ttnn.matmul(z(d, 128, 128, dtype=F32), z(d, 128, 128, dtype=F32)),
    "matmul_tall": lambda d: ttnn.matmul(z(d, 4096, 64), z(d, 64, 64)),
    "matmul_wide": lambda d: ttnn.matmul(z(d, 32, 128), z(d, 128, 4096)),
    "matmul_uneven": lambda d: ttnn.matmul(z(d, 224, 96), z(d, 96, 160)),
    "matmul_broadcast": lambda d: ttnn.matmul(z(d, 4, 1, 64, 128), z(d, 1, 1, 128, 64)),
    "matmul_transposed": lambda d: ttnn.matmul(z(d, 128, 64), z(d, 256, 64), transpose_b=True),
    "matmul_core_grid": lambda d: ttnn.matmul(z(d, 256, 256), z(d, 256, 256), core_grid=ttnn.CoreGrid(x=4, y=2)),
    "matmul_l1": lambda d: ttnn.matmul(z(d, 128, 128, mem=L1), z(d, 128, 128, mem=L1), memory_config=L1),
    "matmul_block_sharded": mm_sharded_2d,
    "linear_height_sharded": mm_height_sharded,
    "linear_silu": lambda d: ttnn.linear(z(d, 128, 128), z(d, 128, 128), activation="silu"),
    "sparse_matmul": sparse_matmul,
    "matmul_dram_sharded": dram_sharded_matmul,
    "minimal_matmul": lambda d: ttnn.experimental.minimal_matmul(z(d, 256, 256), z(d, 256, 256)),
    "addmm": lambda d: ttnn.addmm(z(d, 64, 64), z(d, 64, 64), z(d, 64, 64)),
    "outer": lambda d: ttnn.outer(z(d, 1, 1, 1, 64), z(d, 1, 1, 1, 64)),
    "moreh_matmul": lambda d: ttnn.operations.moreh.matmul(z(d, 1, 1, 64, 128), z(d, 1, 1, 128, 64)),
    "moreh_linear": lambda d: ttnn.operations.moreh.linear(z(d, 1, 1, 64, 128), z(d, 1, 1, 64, 128)),
}

# Reductions and norms


def group_norm(d, channels=64, groups=2, x=1, y=1):
    mask = ttnn.zeros((1, groups, 32, 32), dtype=BF16, layout=TILE, device=d)
    return ttnn.group_norm(z(d, 1, 1, 256, channels, mem=DRAM), num_groups=groups, input_mask=mask, core_grid=ttnn.CoreGrid(x=x, y=y), inplace=False, num_out_blocks=1, output_layout=TILE)


def group_norm_sharded(d):
    mem = sharded((1, 1, 256, 64), 2, 4, B)
    mask = z(d, 1, 2, 32, 32)
    return ttnn.group_norm(z(d, 1, 1, 256, 64, layout=RM, mem=mem), num_groups=2, input_mask=mask, core_grid=ttnn.CoreGrid(x=2, y=4), memory_config=mem)


def rms_norm_width_sharded(d):
    mem = sharded((32, 512), 8, 1, W)
    config = ttnn.LayerNormShardedMultiCoreProgramConfig(compute_with_storage_grid_size=(8, 1), subblock_w=2, block_h=1, block_w=2, inplace=False)
    return ttnn.rms_norm(z(d, 32, 512, mem=mem), weight=z(d, 1, 512), program_config=config, memory_config=mem)


def sampling(d):
    values, indices = z(d, 1, 1, 32, 64), z(d, 1, 1, 32, 64, dtype=I32, layout=RM)
    k, p, t = z(d, 32, dtype=U32, layout=RM), z(d, 32, layout=RM), z(d, 32, layout=RM)
    return ttnn.sampling(values, indices, k, p, t, seed=7)


REDUCTIONS = {
    # Dataflow buffers on parts of another one's cores.
    "argmax_vocabulary": lambda d: ttnn.argmax(z(d, 1, 1, 32, 128256, layout=RM), dim=-1),
    "argmax_vocabulary_one_row": lambda d: ttnn.argmax(z(d, 1, 1, 1, 32000, layout=RM), dim=-1),
    "argmax_all": lambda d: ttnn.argmax(z(d, 1, 1, 32, 256, layout=RM)),
    "argmax_tile": lambda d: ttnn.argmax(z(d, 1, 1, 64, 512), dim=-1),
    "argmax_uint32": lambda d: ttnn.argmax(z(d, 1, 1, 8, 999, dtype=U32, layout=RM), dim=-1),
    "topk_wide": lambda d: ttnn.topk(z(d, 1, 1, 32, 32768), 32, dim=-1),
    "topk_64": lambda d: ttnn.topk(z(d, 1, 1, 64, 256), 64, dim=-1),
    "sum_all": lambda d: ttnn.sum(z(d, 2, 2, 64, 64)),
    "sum_dim0": lambda d: ttnn.sum(z(d, 4, 2, 64, 64), dim=0),
    "sum_hw": lambda d: ttnn.sum(z(d, 1, 4, 64, 64), dim=(2, 3)),
    "sum_f32": lambda d: ttnn.sum(z(d, 128, 128, dtype=F32), dim=-1),
    "sum_big": lambda d: ttnn.sum(z(d, 8, 8, 256, 256), dim=-2),
    "mean_hw": lambda d: ttnn.mean(z(d, 1, 4, 64, 64), dim=(2, 3)),
    "max_h": lambda d: ttnn.max(z(d, 1, 4, 128, 64), dim=-2),
    "min": lambda d: ttnn.min(z(d, 64, 256), dim=-1),
    "prod": lambda d: ttnn.prod(z(d, 1, 1, 64, 64), dim=0),
    "prod_all": lambda d: ttnn.prod(z(d, 1, 1, 64, 64)),
    "std": lambda d: ttnn.std(z(d, 64, 256), dim=-1),
    "var": lambda d: ttnn.var(z(d, 64, 256), dim=-1),
    "cumsum_w": lambda d: ttnn.cumsum(z(d, 1, 1, 64, 256), dim=-1),
    "cumprod": lambda d: ttnn.cumprod(z(d, 4, 1, 64, 64), dim=0),
    "ema": lambda d: ttnn.ema(z(d, 1, 1, 64, 256), 0.5),
    "fast_reduce_nc": lambda d: ttnn.experimental.fast_reduce_nc(z(d, 1, 4, 64, 64), dims=[1]),
    "prefix_scan": lambda d: ttnn.experimental.prefix_scan(*(z(d, 1, 1, 32, 1024, mem=sharded((32, 1024), 8, 1, W)) for _ in "ab"), z(d, 1, 1, 1, 1024, layout=RM, mem=on_cores(grid(8, 1), (1, 128), ttnn.TensorMemoryLayout.WIDTH_SHARDED))),
    "sort_wide": lambda d: ttnn.sort(z(d, 1, 1, 64, 2048), dim=-1),
    "sort_rows": lambda d: ttnn.sort(z(d, 1, 2, 128, 128), dim=-1, descending=True),
    "sampling": sampling,
    "group_norm": group_norm,
    "group_norm_sharded": group_norm_sharded,
    "batch_norm": lambda d: ttnn.batch_norm(z(d, 2, 32, 32, 32), running_mean=z(d, 1, 32, 1, 1), running_var=z(d, 1, 32, 1, 1), training=False),
    "layer_norm_wide": lambda d: ttnn.layer_norm(z(d, 32, 8192)),
    "layer_norm_residual": lambda d: ttnn.layer_norm(z(d, 128, 512), residual_input_tensor=z(d, 128, 512)),
    "layer_norm_f32": lambda d: ttnn.layer_norm(z(d, 64, 256, dtype=F32)),
    "rms_norm_weights": lambda d: ttnn.rms_norm(z(d, 128, 1024), weight=z(d, 1, 1024)),
    "rms_norm_width_sharded": rms_norm_width_sharded,
    "rms_norm_pre_all_gather": lambda d: ttnn.rms_norm_pre_all_gather(z(d, 1, 1, 64, 512)),
    "rms_norm_post_all_gather": lambda d: ttnn.rms_norm_post_all_gather(z(d, 1, 1, 64, 512), z(d, 1, 1, 64, 32), weight=z(d, 1, 512)),
    "layer_norm_pre_all_gather": lambda d: ttnn.layer_norm_pre_all_gather(z(d, 1, 1, 64, 512)),
    "softmax_h": lambda d: ttnn.softmax(z(d, 1, 2, 64, 64), dim=-2),
    "softmax_c": lambda d: ttnn.softmax(z(d, 1, 4, 64, 64), dim=1),
    "softmax_wide": lambda d: ttnn.softmax(z(d, 32, 16384), dim=-1),
    "softmax_f32": lambda d: ttnn.softmax(z(d, 64, 256, dtype=F32), dim=-1),
    "moreh_softmax": lambda d: ttnn.operations.moreh.softmax(z(d, 1, 1, 64, 64), dim=3),
    "moreh_logsoftmax": lambda d: ttnn.operations.moreh.logsoftmax(z(d, 1, 1, 64, 64), dim=2),
    "moreh_mean": lambda d: ttnn.operations.moreh.mean(z(d, 2, 2, 64, 64), dim=[1, 3]),
    "moreh_norm": lambda d: ttnn.operations.moreh.norm(z(d, 2, 2, 64, 64), p=2.0, dim=3),
    "moreh_layer_norm": lambda d: ttnn.operations.moreh.layer_norm(z(d, 2, 2, 64, 64), 1),
    "moreh_group_norm": lambda d: ttnn.operations.moreh.group_norm(z(d, 2, 4, 64, 64), 2, 1e-5),
    "moreh_cumsum": lambda d: ttnn.operations.moreh.cumsum(z(d, 2, 2, 64, 64), 0),
    "moreh_dot": lambda d: ttnn.operations.moreh.dot(z(d, 1, 1, 1, 64), z(d, 1, 1, 1, 64)),
}

# Convolutions and pools


def conv2d(d, side=16, into=32, out=32, kernel=3, stride=1, groups=1, bias=False, **options):
    w = ttnn.zeros((out, into // groups, kernel, kernel), dtype=BF16, layout=RM)  # on the host
    b = ttnn.zeros((1, 1, 1, out), dtype=BF16, layout=RM) if bias else None
    return ttnn.conv2d(
        input_tensor=z(d, 1, 1, side * side, into, layout=RM), weight_tensor=w, bias_tensor=b, in_channels=into, out_channels=out,
        device=d, kernel_size=(kernel, kernel), stride=(stride, stride), padding=(kernel // 2, kernel // 2), batch_size=1,
        input_height=side, input_width=side, groups=groups, **options,
    )


def conv1d(d):
    w = ttnn.zeros((32, 32, 3), dtype=BF16, layout=RM)
    return ttnn.conv1d(
        input_tensor=z(d, 1, 1, 64, 32, layout=RM), weight_tensor=w, device=d, in_channels=32, out_channels=32, batch_size=1,
        input_length=64, kernel_size=3, stride=1, padding=1,
    )


def conv_transpose2d(d):
    w = ttnn.zeros((32, 32, 2, 2), dtype=BF16, layout=RM)
    return ttnn.conv_transpose2d(
        input_tensor=z(d, 1, 1, 64, 32, layout=RM), weight_tensor=w, device=d, in_channels=32, out_channels=32, batch_size=1,
        input_height=8, input_width=8, kernel_size=(2, 2), stride=(2, 2), padding=(0, 0),
    )


def conv_sharded(layout):
    return lambda d: conv2d(d, 16, 64, 64, conv_config=ttnn.Conv2dConfig(shard_layout=layout))


LAYOUTS = ttnn.TensorMemoryLayout

# Ops that slide a window over a sharded tensor, to which they add the edges of its neighbours.
WINDOWS = {
    "conv2d_height_sharded": conv_sharded(LAYOUTS.HEIGHT_SHARDED),
    "conv2d_block_sharded": conv_sharded(LAYOUTS.BLOCK_SHARDED),
    "conv2d_width_sharded": conv_sharded(LAYOUTS.WIDTH_SHARDED),
    "conv2d_stride_2": lambda d: conv2d(d, 16, 32, 64, stride=2),
    "conv2d_bias": lambda d: conv2d(d, 16, 32, 32, bias=True),
    "conv2d_grouped": lambda d: conv2d(d, 16, 32, 32, groups=2),
    "conv2d_depthwise": lambda d: conv2d(d, 16, 32, 32, groups=32),
    "conv2d_7x7": lambda d: conv2d(d, 32, 16, 32, kernel=7, stride=2),
    "conv1d": conv1d,
    "conv_transpose2d": conv_transpose2d,
    "max_pool2d_3x3": lambda d: ttnn.max_pool2d(z(d, 1, 1, 32 * 32, 64, layout=RM), 1, 32, 32, 64, [3, 3], [2, 2], [1, 1], [1, 1]),
    "avg_pool2d": lambda d: ttnn.avg_pool2d(z(d, 1, 1, 16 * 16, 32, layout=RM), 1, 16, 16, 32, [2, 2], [2, 2], [0, 0]),
    "adaptive_avg_pool2d": lambda d: ttnn.adaptive_avg_pool2d(z(d, 1, 1, 16 * 16, 32, layout=RM), batch_size=1, input_h=16, input_w=16, channels=32, output_size=[4, 4]),
}

POOLS = {
    "global_avg_pool2d": lambda d: ttnn.global_avg_pool2d(z(d, 1, 8, 8, 32)),
    "upsample_3": lambda d: ttnn.upsample(z(d, 1, 4, 4, 64, layout=RM), 3),
    "upsample_sharded": lambda d: ttnn.upsample(z(d, 1, 8, 8, 32, layout=RM, mem=on_cores(grid(8, 1), (8, 32))), 2),
    "grid_sample": lambda d: ttnn.grid_sample(z(d, 1, 8, 8, 32, layout=RM), z(d, 1, 4, 4, 2, layout=RM)),
    "fold": lambda d: ttnn.fold(z(d, 1, 16, 16, 32, layout=RM), 2, 2),
    "convert_to_chw": lambda d: ttnn.experimental.convert_to_chw(z(d, 1, 1, 256, 32, mem=sharded((256, 32), 8, 1, H))),
    "convert_to_hwc": lambda d: ttnn.experimental.convert_to_hwc(z(d, 1, 1, 4, 256, layout=RM, mem=on_cores(grid(8, 1), (4, 32), LAYOUTS.WIDTH_SHARDED))),
}

# Data movement


def move_l1(d):
    low, high = z(d, 64, 64, mem=L1), z(d, 64, 64, mem=L1)
    ttnn.deallocate(low)
    return ttnn.move(high)


MOVEMENT = {
    "transpose_cn": lambda d: ttnn.transpose(z(d, 2, 4, 32, 64), 0, 1),
    "transpose_rm": lambda d: ttnn.transpose(z(d, 1, 2, 32, 64, layout=RM), -2, -1),
    "transpose_hc_rm": lambda d: ttnn.transpose(z(d, 1, 4, 32, 64, layout=RM), 1, 2),
    "transpose_f32": lambda d: ttnn.transpose(z(d, 1, 1, 64, 128, dtype=F32), -2, -1),
    "transpose_sharded": lambda d: ttnn.transpose(z(d, 1, 8, 32, 64, mem=on_cores(grid(8, 1), (32, 64))), -2, -1),
    "permute_rm": lambda d: ttnn.permute(z(d, 2, 4, 16, 32, layout=RM), (0, 2, 3, 1)),
    "permute_0312": lambda d: ttnn.permute(z(d, 1, 4, 32, 64), (0, 3, 1, 2)),
    "permute_5d": lambda d: ttnn.permute(z(d, 2, 2, 2, 32, 32), (4, 3, 2, 1, 0)),
    "reshape_rm": lambda d: ttnn.reshape(z(d, 64, 100, layout=RM), (100, 64)),
    "reshape_odd": lambda d: ttnn.reshape(z(d, 1, 10, 30, 50), (1, 1, 300, 50)),
    "concat_w": lambda d: ttnn.concat([z(d, 64, 64), z(d, 64, 96)], dim=-1),
    "concat_rm": lambda d: ttnn.concat([z(d, 16, 48, layout=RM), z(d, 16, 16, layout=RM)], dim=-1),
    "concat_many": lambda d: ttnn.concat([z(d, 1, 1, 32, 64) for _ in range(12)], dim=0),
    "concat_sharded": lambda d: ttnn.concat([z(d, 256, 32, mem=sharded((256, 32), 8, 1, H)) for _ in "ab"], dim=-1, memory_config=sharded((256, 64), 8, 1, H)),
    "split_two": lambda d: ttnn.split(z(d, 1, 1, 64, 128), 64, dim=3),
    "chunk": lambda d: ttnn.chunk(z(d, 1, 1, 64, 128), 2, 3),
    "slice_steps": lambda d: ttnn.slice(z(d, 1, 2, 64, 64, layout=RM), [0, 0, 0, 0], [1, 2, 64, 64], [1, 1, 2, 1]),
    "slice_sharded": lambda d: ttnn.slice(z(d, 1, 1, 256, 64, layout=RM, mem=on_cores(grid(8, 1), (32, 64))), [0, 0, 0, 0], [1, 1, 128, 64], memory_config=on_cores(grid(4, 1), (32, 64))),
    "padded_slice": lambda d: ttnn.experimental.padded_slice(z(d, 1, 8, 8, 32, layout=RM), [0, 0, 0, 0], [1, 4, 8, 32], [1, 1, 1, 1], memory_config=on_cores(grid(4, 1), (8, 32))),
    "pad_tile": lambda d: ttnn.pad(z(d, 1, 1, 64, 64), [(0, 0), (0, 0), (0, 32), (0, 64)], 0.0),
    "pad_front": lambda d: ttnn.pad(z(d, 1, 2, 32, 32, layout=RM), [(0, 0), (1, 1), (2, 2), (0, 16)], 1.0),
    "repeat_w": lambda d: ttnn.repeat(z(d, 1, 1, 32, 64), ttnn.Shape([1, 1, 1, 3])),
    "repeat_interleave": lambda d: ttnn.repeat_interleave(z(d, 1, 1, 32, 64), 2, dim=2),
    "expand": lambda d: ttnn.expand(z(d, 1, 1, 32, 64), [1, 4, 32, 64]),
    "stack": lambda d: ttnn.stack([z(d, 32, 64), z(d, 32, 64)], dim=0),
    "roll": lambda d: ttnn.roll(z(d, 1, 1, 64, 64), 5, 3),
    "nonzero": lambda d: ttnn.nonzero(z(d, 1, 1, 1, 64, layout=RM)),
    "tilize_f32": lambda d: ttnn.tilize(z(d, 128, 128, dtype=F32, layout=RM)),
    "tilize_one_core": lambda d: ttnn.tilize(z(d, 64, 64, layout=RM), use_multicore=False),
    "tilize_sharded": lambda d: ttnn.tilize(z(d, 256, 64, layout=RM, mem=on_cores(grid(8, 1), (32, 64)))),
    "tilize_val_padding": lambda d: ttnn.tilize_with_val_padding(z(d, 1, 1, 40, 70, layout=RM), [1, 1, 64, 96], 3.0),
    "untilize_one_core": lambda d: ttnn.untilize(z(d, 64, 64), use_multicore=False),
    "untilize_unpadding": lambda d: ttnn.untilize_with_unpadding(z(d, 1, 1, 64, 64), [0, 0, 39, 49]),
    "untilize_block_sharded": lambda d: ttnn.untilize(z(d, 256, 256, mem=sharded((256, 256), 4, 4, B))),
    "to_layout_rm": lambda d: ttnn.to_layout(z(d, 1, 1, 50, 50), RM),
    "embedding_tile": lambda d: ttnn.embedding(z(d, 2, 64, dtype=U32, layout=RM), z(d, 512, 128, layout=RM), layout=TILE),
    "embedding_bw": lambda d: ttnn.embedding_bw(z(d, 1, 32, dtype=U32, layout=RM), z(d, 128, 64, layout=RM), z(d, 1, 1, 32, 64)),
    "gather_wide": lambda d: ttnn.gather(z(d, 1, 1, 64, 1024), 3, z(d, 1, 1, 64, 256, dtype=U32)),
    "scatter_add": lambda d: ttnn.scatter_add(z(d, 1, 1, 32, 64), 3, z(d, 1, 1, 32, 32, dtype=I32), z(d, 1, 1, 32, 32)),
    "indexed_fill": lambda d: ttnn.indexed_fill(z(d, 1, 1, 1, 2, dtype=U32, layout=RM), z(d, 4, 1, 32, 32, layout=RM), z(d, 2, 1, 32, 32, layout=RM), dim=0),
    "to_width_sharded": lambda d: ttnn.to_memory_config(z(d, 64, 256), sharded((64, 256), 8, 1, W)),
    "to_block_sharded": lambda d: ttnn.to_memory_config(z(d, 256, 256), sharded((256, 256), 4, 4, B)),
    "reshard_to_width": lambda d: ttnn.to_memory_config(z(d, 64, 256, mem=sharded((64, 256), 2, 1, H)), sharded((64, 256), 8, 1, W)),
    "interleaved_to_sharded_cast": lambda d: ttnn.interleaved_to_sharded(z(d, 256, 64), sharded((256, 64), 4, 2, H), BFP8),
    "sharded_partial": lambda d: ttnn.interleaved_to_sharded_partial(z(d, 1, 1, 512, 64), (8, 1), [32, 64], 2, 0, LAYOUTS.HEIGHT_SHARDED, ROWS),
    "move_l1": move_l1,
    "clone_f32": lambda d: ttnn.clone(z(d, 64, 64), dtype=F32),
    "plus_one": lambda d: ttnn.plus_one(z(d, 1, 1, 1, 32, dtype=I32, layout=RM)),
    "moreh_getitem": lambda d: ttnn.operations.moreh.getitem(z(d, 8, 64, layout=RM), [z(d, 4, dtype=I32, layout=RM)], [0]),
    "moreh_arange": lambda d: ttnn.operations.moreh.arange(0, 64, 1, d),
    "tril": lambda d: ttnn.tril(z(d, 64, 64)),
    "bcast_hw": lambda d: ttnn.bcast(z(d, 1, 2, 64, 64), z(d, 1, 1, 32, 32), ttnn.BcastOpMath.ADD, ttnn.BcastOpDim.HW),
    "bcast_h": lambda d: ttnn.bcast(z(d, 1, 2, 64, 64), z(d, 1, 1, 32, 64), ttnn.BcastOpMath.MUL, ttnn.BcastOpDim.H),
}

# Eltwise


def binary(op, dtype=BF16, mem=DRAM, shapes=((64, 128), (64, 128)), **options):
    return lambda d: op(*(z(d, *shape, dtype=dtype, mem=mem) for shape in shapes), **options)


def unary_sharded(op, how, shape, x, y, dtype=BF16):
    def run(d):
        mem = sharded(shape, x, y, how)
        return op(z(d, *shape, dtype=dtype, mem=mem), memory_config=mem)

    return run


ELTWISE = {
    "add_f32": binary(ttnn.add, F32),
    "add_int32": binary(ttnn.add, I32),
    "add_bfp8": binary(ttnn.add, BFP8),
    "add_broadcast_w": binary(ttnn.add, shapes=((1, 1, 64, 64), (1, 1, 64, 1))),
    "add_broadcast_hw": binary(ttnn.add, shapes=((1, 4, 64, 64), (1, 1, 1, 1))),
    "add_broadcast_c": binary(ttnn.add, shapes=((2, 4, 64, 64), (1, 1, 64, 64))),
    "add_activations": lambda d: ttnn.add(z(d, 64, 64), z(d, 64, 64), activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)]),
    "add_sharded_and_interleaved": lambda d: ttnn.add(z(d, 256, 64, mem=sharded((256, 64), 8, 1, H)), z(d, 256, 64)),
    "add_two_layouts": lambda d: ttnn.add(z(d, 256, 64, mem=sharded((256, 64), 8, 1, H)), z(d, 256, 64, mem=sharded((256, 64), 4, 1, H)), memory_config=DRAM),
    "add_in_place": lambda d: ttnn.add_(z(d, 64, 64), z(d, 64, 64)),
    "subtract_l1": binary(ttnn.subtract, mem=L1),
    "divide": binary(ttnn.divide, F32),
    "maximum": binary(ttnn.maximum),
    "pow": binary(ttnn.pow),
    "eq": binary(ttnn.eq),
    "logical_and": binary(ttnn.logical_and),
    "bitwise_xor": binary(ttnn.bitwise_xor, I32),
    "remainder": binary(ttnn.remainder),
    "logaddexp": binary(ttnn.logaddexp),
    "lerp": lambda d: ttnn.lerp(z(d, 64, 64), z(d, 64, 64), 0.5),
    "addcmul": binary(ttnn.addcmul, shapes=((64, 64),) * 3, value=1.0),
    "where_scalar": lambda d: ttnn.where(z(d, 64, 64), 1.0, z(d, 64, 64)),
    "where_broadcast": lambda d: ttnn.where(z(d, 1, 1, 64, 64), z(d, 1, 1, 1, 64), z(d, 1, 1, 64, 64)),
    "gelu_f32": lambda d: ttnn.gelu(z(d, 512, 512, dtype=F32)),
    "silu_block_sharded": unary_sharded(ttnn.silu, B, (256, 256), 4, 4),
    "exp_width_sharded": unary_sharded(ttnn.exp, W, (64, 512), 8, 1),
    "sqrt_bfp8_sharded": unary_sharded(ttnn.sqrt, H, (256, 128), 4, 2, BFP8),
    "tanh_one_core": unary_sharded(ttnn.tanh, H, (32, 64), 1, 1),
    "relu_rm": lambda d: ttnn.relu(z(d, 64, 64, layout=RM)),
    "clamp": lambda d: ttnn.clamp(z(d, 64, 64), 0.0, 1.0),
    "leaky_relu": lambda d: ttnn.leaky_relu(z(d, 64, 64), 0.1),
    "hardtanh": lambda d: ttnn.hardtanh(z(d, 64, 64)),
    "unary_chain": lambda d: ttnn.unary_chain(z(d, 64, 64), [ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU), ttnn.UnaryWithParam(ttnn.UnaryOpType.EXP, 0.0)]),
    "typecast_uint32": lambda d: ttnn.typecast(z(d, 64, 64), U32),
    "typecast_uint16_rm": lambda d: ttnn.typecast(z(d, 64, 64, dtype=U16, layout=RM), U32),
    "typecast_bfp4": lambda d: ttnn.typecast(z(d, 128, 128), BFP4),
    "typecast_sharded": unary_sharded(lambda x, memory_config: ttnn.typecast(x, F32), H, (256, 64), 4, 2),
    "geglu": lambda d: ttnn.geglu(z(d, 1, 1, 64, 128), 3),
    "swiglu": lambda d: ttnn.swiglu(z(d, 1, 1, 64, 128), 3),
    "gelu_bw": binary(ttnn.gelu_bw),
    "mul_bw": binary(ttnn.mul_bw, shapes=((64, 64),) * 3),
    "dropout": lambda d: ttnn.experimental.dropout(z(d, 64, 64), probability=0.5, scale=2.0, seed=1),
    "mse_loss": lambda d: ttnn.mse_loss(z(d, 64, 64), z(d, 64, 64), reduction=ttnn.LossReductionMode.SUM),
    "quantize": lambda d: ttnn.quantize(z(d, 64, 64, dtype=F32), 0.5, 1),
    "uniform": lambda d: ttnn.uniform(z(d, 64, 64), 0.0, 1.0),
    "randn": lambda d: ttnn.randn((64, 64), device=d, dtype=BF16, layout=TILE),
    "full": lambda d: ttnn.moreh_full([64, 64], 3.0, d, dtype=BF16, layout=TILE, memory_config=DRAM),
    "moreh_adam": lambda d: ttnn.operations.moreh.adam(*(z(d, 1, 1, 64, 64) for _ in range(4)), lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0, step=1, amsgrad=False),
    "moreh_sgd": lambda d: ttnn.operations.moreh.sgd(z(d, 1, 1, 64, 64), z(d, 1, 1, 64, 64), None, None, None, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, momentum_initialized=False),
}

MORE_OPS = {**GENERIC, **ATTENTION, **MATMUL, **REDUCTIONS, **WINDOWS, **POOLS, **MOVEMENT, **ELTWISE}

# Ops that crash stock ttnn on a mock chip, also without the agent: release and architecture.
CRASHES = {"attn_matmul": ("0.80.0", "blackhole")}

# Ops of every kind, above all with overlapping ranges of cores, views and several programs, which take little time.
SHORT = (
    "generic_nested generic_nested_inside_out generic_overlapping generic_rows_and_columns generic_views sdpa_grouped sdpa_decode"
    " paged_update_cache rotary_llama_decode create_qkv_heads_decode matmul_block_sharded sparse_matmul argmax_vocabulary"
    " argmax_all topk_wide group_norm rms_norm_width_sharded sampling sort_wide conv2d_block_sharded avg_pool2d transpose_sharded"
    " concat_sharded slice_sharded untilize_block_sharded add_sharded_and_interleaved silu_block_sharded typecast_sharded"
).split()
