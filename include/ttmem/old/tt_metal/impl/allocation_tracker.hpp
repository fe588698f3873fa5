// The module that the old guide to full integration asks TT-Metal's own sources to call, from `Program::add_kernel` and
// `CreateCircularBuffer`.
#ifndef TTMEM_OLD_ALLOCATION_TRACKER_HPP
#define TTMEM_OLD_ALLOCATION_TRACKER_HPP

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "../../../instrumented.hpp"

namespace tt::tt_metal::allocation_tracker {

namespace detail {

/// Circular buffers by device, size and index, newest last: a free does not name the cores.
using Placements = std::map<std::tuple<int, uint64_t, uint64_t>, std::vector<ttmem_placement>>;

inline Placements& placements() {
    static Placements& instance = *new Placements;
    return instance;
}

}  // namespace detail

inline bool is_tracking_enabled() noexcept { return ttmem::is_enabled(); }
inline void enable_tracking() noexcept { ttmem::enable(); }
inline void disable_tracking() noexcept { ttmem::close(); }

/// Registers a kernel; `size` is the total over its cores. The last argument does not identify a kernel: handles begin at 0 in each program,
/// and some versions pass a core type instead. There is no call that unloads a kernel, so no identity is needed.
template <class Handle>
void report_kernel_allocation(int device_id, uint64_t size, const Handle&) noexcept {
    namespace tracked = ttmem::instrumented::detail;
    const auto work = [&] { ttmem::AllocationClient::report_kernel_load(device_id, size, tracked::registry().fresh()); };
    tracked::swallow(work, tracked::tally().failed);
}

/// Registers a circular buffer; `size` is per core.
template <class Cores>
void report_cb_allocation(int device_id, uint64_t size, uint32_t buffer_index, const Cores& cores) noexcept {
    namespace tracked = ttmem::instrumented::detail;
    const auto work = [&] {
        if (!ttmem::is_enabled()) {
            return;
        }
        tracked::CoreList list;
        tracked::read_cores(cores, list);
        ttmem_placement placement{};
        placement.allocator = ttmem::define_devices({device_id}).number();
        placement.space = TTMEM_SPACE_CB;
        // Programs share indices, and the program is unknown.
        placement.address = tracked::registry().fresh(size);
        placement.bytes = size;
        placement.cores = list.are_known() ? ttmem_define_cores(list.data(), list.size()) : 0;
        placement.flags = TTMEM_FLAG_UNPLACED;
        tracked::registry().alone([&] {
            if (ttmem_place(&placement) >= 0) {
                detail::placements()[{device_id, size, buffer_index}].push_back(placement);
            }
        });
    };
    tracked::swallow(work, tracked::tally().failed);
}

/// Removes the circular buffer that was last registered with these arguments.
inline void report_cb_free(int device_id, uint64_t size, uint32_t buffer_index) noexcept {
    namespace tracked = ttmem::instrumented::detail;
    const auto work = [&] {
        tracked::registry().alone([&] {
            const auto found = detail::placements().find({device_id, size, buffer_index});
            if (found != detail::placements().end()) {
                ttmem_displace(&found->second.back());
                found->second.pop_back();
                if (found->second.empty()) {
                    detail::placements().erase(found);
                }
            }
        });
    };
    tracked::swallow(work, tracked::tally().failed);
}

}  // namespace tt::tt_metal::allocation_tracker

#endif  // TTMEM_OLD_ALLOCATION_TRACKER_HPP
