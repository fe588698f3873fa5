// Snippets of the old documents, unchanged, in the old namespaces: only the include path and the library are ttmem's.
//
// TT-Metal's types of that time are stand-ins with the members that the snippets use.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness.hpp"

namespace tt {
enum class DataFormat : std::uint8_t { Float16_b = 5 };
}

namespace tt::tt_metal {

class Device {
public:
    explicit Device(int id) : id_(id) {}
    int id() const { return id_; }

private:
    int id_;
};

struct CoreCoord {
    std::size_t x, y;
};
struct CoreRange {
    CoreCoord start_coord, end_coord;
    std::size_t size() const { return (end_coord.x - start_coord.x + 1) * (end_coord.y - start_coord.y + 1); }
};
class CoreRangeSet {
public:
    explicit CoreRangeSet(std::vector<CoreRange> ranges) : ranges_(std::move(ranges)) {}
    const std::vector<CoreRange>& ranges() const { return ranges_; }
    std::size_t size() const { return ranges_.front().size(); }

private:
    std::vector<CoreRange> ranges_;
};

class CircularBuffer {};
class CircularBufferConfig {
public:
    CircularBufferConfig(std::uint32_t size, const std::map<std::uint8_t, DataFormat>&) : size_(size) {}
    std::uint32_t total_size() const { return size_; }
    std::uint32_t buffer_index() const { return 2; }

private:
    std::uint32_t size_;
};
struct DataMovementConfig {};
struct ComputeConfig {};
struct EthernetConfig {};
using KernelHandle = std::uint32_t;
using KernelConfig = std::variant<DataMovementConfig, ComputeConfig, EthernetConfig>;

struct Kernel {
    std::vector<std::uint8_t> compute_binary() const { return std::vector<std::uint8_t>(20000); }
    std::vector<std::uint8_t> data_movement_binary() const { return std::vector<std::uint8_t>(10000); }
};

class Program {
public:
    Program(int id, Device* device) : id_(id), device_(device) {}
    int id() const { return id_; }
    Device* device() const { return device_; }
    KernelHandle add_kernel(const KernelConfig&, const CoreRangeSet&) { return next_++; }
    KernelHandle add_kernel(const std::shared_ptr<Kernel>&, const CoreRangeSet&);

private:
    int id_;
    Device* device_;
    // Counted per program, as in TT-Metal.
    KernelHandle next_ = 0;
};

std::shared_ptr<CircularBuffer> CreateCircularBuffer(
    Device*, const std::map<std::uint8_t, DataFormat>&, const CircularBufferConfig&) {
    return std::make_shared<CircularBuffer>();
}

}  // namespace tt::tt_metal

// ---- custom tracking ----

#include "tt_metal/impl/allocator/allocation_client.hpp"

namespace tt::tt_metal {

void custom_tracking(int device_id, uint64_t size, uint8_t buffer_type, uint64_t address) {
    // Report an allocation
    AllocationClient::report_allocation(device_id, size, buffer_type, address);
    stop("custom tracking");

    // Report a deallocation
    AllocationClient::report_deallocation(device_id, address);
    stop("nothing");
}

// The calls of the old allocator.
void hooks_of_the_allocator(int device_id_, uint64_t size, uint8_t buffer_type, uint64_t address) {
    if (AllocationClient::is_enabled() && device_id_ >= 0) {
        AllocationClient::report_allocation(
            device_id_,  // Use stored ID, not buffer->device()->id()
            size,
            static_cast<uint8_t>(buffer_type),
            address
        );
    }
    void (*report)(int, uint64_t, uint64_t) = &AllocationClient::report_cb_allocation;
    report(device_id_, 100, 0x100);
    AllocationClient::report_kernel_load(device_id_, 2000, 7);
    AllocationClient::report_kernel_load(device_id_, 3000, 8, 1);
    stop("hooks of the allocator");
    AllocationClient::report_kernel_unload(device_id_, 2000, 7);
    AllocationClient::report_kernel_unload(device_id_, 8);
    AllocationClient::report_cb_deallocation(device_id_, 100, 0x100);
    // The first form of this call, without a device.
    AllocationClient::report_deallocation(address);
    stop("nothing");
}

}  // namespace tt::tt_metal

// ---- statistics of the allocators ----

#include <tt-metalium/update_allocator_stats.hpp>

namespace tt::tt_metal {

void statistics_of_allocators(int device_id) {
    AllocationClient::report_allocation(device_id, 4096, 1, 0x40000);
    // After running some operations
    tt::tt_metal::UpdateAllocatorStatsToShm();
    void (*update)() = &UpdateAllocatorStatsToShm;
    update();
    stop("statistics of allocators");
    AllocationClient::report_deallocation(device_id, 0x40000);
}

}  // namespace tt::tt_metal

// ---- approach 2: wrappers ----

#include "instrumented_helpers.hpp"

namespace tt::tt_metal {

void wrappers() {
    Device chip(4);
    Device* device = &chip;
    Program program(9, device);
    std::map<uint8_t, tt::DataFormat> data_format_spec = {{0, tt::DataFormat::Float16_b}};
    CircularBufferConfig config(1024 * 2048, data_format_spec);
    DataMovementConfig kernel_config;
    CoreRangeSet core_ranges({CoreRange{{0, 0}, {7, 9}}});

    auto cb = tt::tt_metal::instrumented::CreateCircularBufferWithTracking(
        device, data_format_spec, config
    );
    static_assert(std::is_same_v<decltype(cb), std::shared_ptr<CircularBuffer>>);
    CHECK(cb != nullptr);

    auto kernel_handle = tt::tt_metal::instrumented::AddKernelWithTracking(
        program, kernel_config, core_ranges
    );
    static_assert(std::is_same_v<decltype(kernel_handle), KernelHandle>);
    CHECK(kernel_handle == 0);
    stop("wrappers");

    const int device_id = 5;
    const uint64_t cb_size = 4096, cb_index = 3, kernel_size = 2048, kernel_id = 6;
    // Report a CB allocation
    tt::tt_metal::instrumented::send_memory_event(
        tt::tt_metal::instrumented::MemoryEventType::CB_ALLOC,
        device_id,
        cb_size,
        cb_index
    );

    // Report kernel load
    tt::tt_metal::instrumented::send_memory_event(
        tt::tt_metal::instrumented::MemoryEventType::KERNEL_LOAD,
        device_id,
        kernel_size,
        kernel_id
    );
    stop("manual reporting");
    using instrumented::MemoryEventType;
    CHECK(instrumented::send_memory_event(MemoryEventType::CB_FREE, device_id, cb_size, cb_index));
    CHECK(instrumented::send_memory_event(MemoryEventType::KERNEL_UNLOAD, device_id, kernel_size, kernel_id));
    CHECK(!instrumented::send_memory_event(MemoryEventType::KERNEL_UNLOAD, device_id, kernel_size, kernel_id));
    ttmem::instrumented::ForgetProgram(program);
    stop("only the circular buffer of no program");
}

}  // namespace tt::tt_metal

// ---- approach 3: hooks in TT-Metal's own sources ----

#include "allocation_tracker.hpp"

namespace tt::tt_metal {

KernelHandle Program::add_kernel(const std::shared_ptr<Kernel>& kernel, const CoreRangeSet& core_ranges) {
    const KernelHandle kernel_handle = next_++;

    // NEW: Get actual kernel binary size
    size_t compute_size = kernel->compute_binary().size();
    size_t datamovement_size = kernel->data_movement_binary().size();
    size_t total_size = compute_size + datamovement_size;

    // NEW: Report to allocation server
    if (tt::tt_metal::allocation_tracker::is_tracking_enabled()) {
        tt::tt_metal::allocation_tracker::report_kernel_allocation(
            this->device_->id(),
            total_size * core_ranges.size(),  // Size × num cores
            kernel_handle
        );
    }

    return kernel_handle;
}

std::shared_ptr<CircularBuffer> CreateCircularBuffer(Device* device, const CoreRange& core_range, const CircularBufferConfig& config) {
    auto cb = std::make_shared<CircularBuffer>();

    // NEW: Report CB allocation
    if (tt::tt_metal::allocation_tracker::is_tracking_enabled()) {
        tt::tt_metal::allocation_tracker::report_cb_allocation(
            device->id(),
            config.total_size(),
            config.buffer_index(),
            core_range
        );
    }

    return cb;
}

void full_integration() {
    Device chip(6);
    Program program(10, &chip);
    const CoreRange core_range{{0, 0}, {3, 0}};
    const CircularBufferConfig config(512, {});
    allocation_tracker::enable_tracking();
    CHECK(program.add_kernel(std::make_shared<Kernel>(), CoreRangeSet({core_range})) == 0);
    // A kernel of another program, with the same handle and size.
    CHECK(Program(11, &chip).add_kernel(std::make_shared<Kernel>(), CoreRangeSet({core_range})) == 0);
    CHECK(CreateCircularBuffer(&chip, core_range, config) != nullptr);
    // A circular buffer of another program, with the same index and size.
    CHECK(CreateCircularBuffer(&chip, core_range, config) != nullptr);
    stop("full integration");
    allocation_tracker::report_cb_free(6, 512, 2);
    stop("one freed");
    allocation_tracker::report_cb_free(6, 512, 2);
    allocation_tracker::report_cb_free(6, 512, 2);
    stop("both freed");
    allocation_tracker::disable_tracking();
    CHECK(!allocation_tracker::is_tracking_enabled());
}

}  // namespace tt::tt_metal

int main() {
    tt::tt_metal::custom_tracking(3, 1 << 20, 0, 0x20000);
    tt::tt_metal::hooks_of_the_allocator(3, 4096, 1, 0x30000);
    tt::tt_metal::statistics_of_allocators(3);
    tt::tt_metal::wrappers();
    tt::tt_metal::full_integration();
}
