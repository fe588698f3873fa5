// The old client's header, for code that includes it by its old name: the same class, in the same place, with the same calls.
//
// Add -I<prefix>/include/ttmem/old and -I<prefix>/include, and link ttmem instead of the fork's libtt_metal. Nothing is sent to a server
// unless TTMEM_TRANSPORT=legacy asks for it.
#ifndef TTMEM_OLD_ALLOCATION_CLIENT_HPP
#define TTMEM_OLD_ALLOCATION_CLIENT_HPP

#include <cstdint>

#include "../../../../../ttmem.hpp"

namespace tt::tt_metal {

/// As in the old client, nothing is returned. `ttmem::AllocationClient` returns errors.
class AllocationClient {
public:
    AllocationClient() = delete;

    static bool is_enabled() noexcept { return ttmem::is_enabled(); }

    static void report_allocation(int device_id, uint64_t size, uint8_t buffer_type, uint64_t buffer_id) noexcept {
        ttmem::AllocationClient::report_allocation(device_id, size, buffer_type, buffer_id);
    }
    /// Takes TT-Metal's own `BufferType`, before or after the address.
    template <class Type, ttmem::detail::if_enum<Type> = 0>
    static void report_allocation(int device_id, uint64_t size, Type buffer_type, uint64_t buffer_id) noexcept {
        ttmem::AllocationClient::report_allocation(device_id, size, buffer_type, buffer_id);
    }
    template <class Type, ttmem::detail::if_enum<Type> = 0>
    static void report_allocation(int device_id, uint64_t size, uint64_t buffer_id, Type buffer_type) noexcept {
        ttmem::AllocationClient::report_allocation(device_id, size, buffer_id, buffer_type);
    }

    static void report_deallocation(int device_id, uint64_t buffer_id) noexcept {
        ttmem::AllocationClient::report_deallocation(device_id, buffer_id);
    }
    /// The form without a device.
    static void report_deallocation(uint64_t buffer_id) noexcept { ttmem::AllocationClient::report_deallocation(buffer_id); }

    static void report_cb_allocation(int device_id, uint64_t size, uint64_t cb_id) noexcept {
        ttmem::AllocationClient::report_cb_allocation(device_id, size, cb_id);
    }
    static void report_cb_deallocation(int device_id, uint64_t size, uint64_t cb_id) noexcept {
        ttmem::AllocationClient::report_cb_deallocation(device_id, size, cb_id);
    }

    static void report_kernel_load(int device_id, uint64_t size, uint64_t kernel_id, uint8_t kernel_type = 0) noexcept {
        ttmem::AllocationClient::report_kernel_load(device_id, size, kernel_id, kernel_type);
    }
    static void report_kernel_unload(int device_id, uint64_t size, uint64_t kernel_id) noexcept {
        ttmem::AllocationClient::report_kernel_unload(device_id, size, kernel_id);
    }
    /// The form without a size.
    static void report_kernel_unload(int device_id, uint64_t kernel_id) noexcept {
        ttmem::AllocationClient::report_kernel_unload(device_id, kernel_id);
    }
};

}  // namespace tt::tt_metal

#endif  // TTMEM_OLD_ALLOCATION_CLIENT_HPP
