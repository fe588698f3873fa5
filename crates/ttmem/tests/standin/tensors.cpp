// Tensors and semaphores of the stand-in.

#include "tensors.hpp"

using namespace internal_state;

namespace tt::tt_metal {
namespace {
// The buffer that this thread allocates for a tensor.
thread_local Buffer *of_tensor;
}  // namespace

size_t Shape::rank() const {
    throw_if_requested(__func__);
    return is_garbage("rank") ? 77 : own;
}
uint32_t TensorLayout::get_data_type() const {
    throw_if_requested(__func__);
    return is_garbage("data_type") ? 4711 : data_type;
}
uint32_t TensorLayout::get_layout() const { return layout; }

std::shared_ptr<distributed::MeshBuffer> distributed::MeshBuffer::create(
    const std::variant<ReplicatedBufferConfig, ShardedBufferConfig> &,
    const DeviceLocalBufferConfig &local,
    MeshDevice *,
    std::optional<uint64_t> address) {
    if (address != std::optional<uint64_t>(4711)) throw Fatal{7, "wrong arguments"};
    local.buffer->allocate();
    return std::make_shared<MeshBuffer>();
}

std::shared_ptr<distributed::MeshBuffer> tensor_impl::allocate_device_buffer(
    distributed::MeshDevice *mesh, const TensorSpec &) {
    return distributed::MeshBuffer::create(distributed::ReplicatedBufferConfig{}, {of_tensor}, mesh, 4711);
}

void GlobalSemaphoreImpl::setup_buffer(std::optional<uint32_t> value, BufferType type, std::optional<uint64_t> address) {
    if (value != 5u || type != buffer->type_ || address) throw Fatal{8, "wrong arguments"};
    distributed::MeshBuffer::create(distributed::ShardedBufferConfig{}, {buffer}, nullptr, 4711);
}

void allocate_for(const Plan &plan, Buffer *buffer) {
    if (plan.semaphore) {
        GlobalSemaphoreImpl{buffer}.setup_buffer(5, plan.type, {});
    } else if (plan.tensor) {
        // The runtime puts ones in front of a short shape.
        std::vector<uint32_t> all = *plan.tensor;
        auto own = static_cast<uint32_t>(all.size());
        while (all.size() < 4) all.insert(all.begin(), 1);
        of_tensor = buffer;
        auto made = tensor_impl::allocate_device_buffer(nullptr, TensorSpec{Shape(all, own), {}, {}});
        if (!made) throw Fatal{9, "no result"};
    } else {
        distributed::MeshBuffer::create(distributed::ReplicatedBufferConfig{}, {buffer}, nullptr, 4711);
    }
}
}  // namespace tt::tt_metal
