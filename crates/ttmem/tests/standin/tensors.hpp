// Tensors and semaphores of the stand-in: the functions in which their buffers are allocated, and what describes a tensor.

#pragma once

#include "runtime.hpp"

#include <memory>
#include <variant>

namespace tt::tt_metal {
class Shape {
    const uint32_t *dimensions;
    uint32_t len;
    uint32_t own;

public:
    Shape(const std::vector<uint32_t> &all, uint32_t own)
        : dimensions(all.data()), len(static_cast<uint32_t>(all.size())), own(own) {}
    size_t rank() const;
};

class TensorLayout {
    uint32_t data_type = 0, layout = 1;

public:
    uint32_t get_data_type() const;
    uint32_t get_layout() const;
};

class TensorSpec {
public:
    Shape shape;
    char unused[0x38 - sizeof(Shape)] = {};
    TensorLayout layout;
};

namespace distributed {
struct ReplicatedBufferConfig {};
struct ShardedBufferConfig {};
struct DeviceLocalBufferConfig {
    Buffer *buffer;
};

class MeshBuffer {
public:
    static std::shared_ptr<MeshBuffer> create(
        const std::variant<ReplicatedBufferConfig, ShardedBufferConfig> &config,
        const DeviceLocalBufferConfig &local,
        MeshDevice *mesh,
        std::optional<uint64_t> address);
};
}  // namespace distributed

namespace tensor_impl {
std::shared_ptr<distributed::MeshBuffer> allocate_device_buffer(distributed::MeshDevice *mesh, const TensorSpec &spec);
}

class GlobalSemaphoreImpl {
public:
    Buffer *buffer;
    void setup_buffer(std::optional<uint32_t> value, BufferType type, std::optional<uint64_t> address);
};
}  // namespace tt::tt_metal
