"""A small transformer, whose lines that allocate what stays are marked with a comment: `# site: NAME`. It leaks one tensor per step."""

import ttnn

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
L1 = ttnn.L1_MEMORY_CONFIG
LAYERS, WIDTH, HIDDEN, HEADS, HEAD, CACHED = 6, 256, 512, 4, 64, 128


def weight(device, *shape):
    return ttnn.zeros(shape, dtype=BF16, layout=TILE, device=device)  # site: weight


class Attention:
    def __init__(self, device):
        self.qkv, self.out = weight(device, WIDTH, 3 * WIDTH), weight(device, WIDTH, WIDTH)
        shape = (1, HEADS, CACHED, HEAD)
        self.keys = ttnn.zeros(shape, dtype=BF16, layout=TILE, device=device)  # site: keys
        self.values = ttnn.ones(shape, dtype=BF16, layout=TILE, device=device)  # site: values

    def forward(self, x):
        qkv = ttnn.matmul(x, self.qkv, memory_config=L1)
        q, k, v = (ttnn.slice(qkv, (0, 0, 0, n * WIDTH), (1, 1, 32, (n + 1) * WIDTH)) for n in range(3))
        q, k, v = (ttnn.permute(ttnn.reshape(it, (1, 32, HEADS, HEAD)), (0, 2, 1, 3)) for it in (q, k, v))
        ttnn.fill_cache(self.keys, k, 0)
        ttnn.fill_cache(self.values, v, 0)
        shares = ttnn.softmax(ttnn.matmul(q, ttnn.permute(self.keys, (0, 1, 3, 2))), dim=-1)
        mixed = ttnn.permute(ttnn.matmul(shares, self.values), (0, 2, 1, 3))
        return ttnn.matmul(ttnn.reshape(mixed, (1, 1, 32, WIDTH)), self.out)


class FeedForward:
    def __init__(self, device):
        self.up, self.down = weight(device, WIDTH, HIDDEN), weight(device, HIDDEN, WIDTH)
        self.sharded = ttnn.create_sharded_memory_config(
            shape=(32, HIDDEN),
            core_grid=ttnn.CoreGrid(x=8, y=1),
            strategy=ttnn.ShardStrategy.WIDTH,
            orientation=ttnn.ShardOrientation.ROW_MAJOR,
        )

    def forward(self, x):
        hidden = ttnn.matmul(x, self.up, memory_config=L1)
        self.activation = ttnn.to_memory_config(hidden, self.sharded)  # site: activation
        return ttnn.matmul(ttnn.to_memory_config(ttnn.relu(self.activation), L1), self.down)


class Model:
    def __init__(self, device):
        self.layers = [(Attention(device), FeedForward(device)) for _ in range(LAYERS)]
        self.token = ttnn.zeros((1, 1, 32, WIDTH), dtype=BF16, layout=TILE, device=device)  # site: token
        self.leaked = []

    def step(self):
        x = self.token
        for attention, feed_forward in self.layers:
            x = ttnn.add(x, attention.forward(x))
            x = ttnn.add(x, feed_forward.forward(x))
        self.leaked.append(ttnn.add(x, 1.0))  # site: leak
