// The old wrappers' header, for code that includes it by its old name. The old one included <tt-metalium/host_api.hpp>; this one includes no
// header of TT-Metal, so include that first.
#ifndef TTMEM_OLD_INSTRUMENTED_HELPERS_HPP
#define TTMEM_OLD_INSTRUMENTED_HELPERS_HPP

#include <cstdint>

#include "../instrumented.hpp"

namespace tt::tt_metal::instrumented {

using ttmem::instrumented::AddKernelWithTracking;
using ttmem::instrumented::CreateCircularBufferWithTracking;

/// Event types, numbered as the old messages.
enum class MemoryEventType : uint8_t { CB_ALLOC = 8, CB_FREE = 9, KERNEL_LOAD = 10, KERNEL_UNLOAD = 11 };

/// Reports one event; returns whether it was recorded.
inline bool send_memory_event(MemoryEventType type, int device_id, uint64_t size, uint64_t id = 0) noexcept {
    using Client = ttmem::AllocationClient;
    if (!Client::is_enabled()) {
        return false;
    }
    switch (type) {
        case MemoryEventType::CB_ALLOC: return Client::report_cb_allocation(device_id, size, id).ok();
        case MemoryEventType::CB_FREE: return Client::report_cb_deallocation(device_id, size, id).ok();
        case MemoryEventType::KERNEL_LOAD: return Client::report_kernel_load(device_id, size, id).ok();
        case MemoryEventType::KERNEL_UNLOAD: return Client::report_kernel_unload(device_id, id).ok();
    }
    return false;
}

}  // namespace tt::tt_metal::instrumented

#endif  // TTMEM_OLD_INSTRUMENTED_HELPERS_HPP
