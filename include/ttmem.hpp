// ttmem for C++: publishes the device memory that a process uses, for the program `ttmem` to show.
//
// C++17, header-only, over the C interface in ttmem.h; link with libttmem (pkg-config: ttmem). Nothing here throws, allocates,
// prints or blocks; every call may be made at any time, from any thread and from forked children. While tracking is off, a
// call costs a load and a branch.
//
//     #include <ttmem.hpp>
//
//     ttmem::AllocationClient::report_allocation(0, 4096, ttmem::BufferType::dram, 0x10000);
//     ttmem::AllocationClient::report_deallocation(0, 0x10000);
//
// Code written for the old client compiles unchanged with `-I<prefix>/include/ttmem/old`; see docs/cpp.md.
#ifndef TTMEM_HPP
#define TTMEM_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "ttmem.h"

namespace ttmem {

/// Error codes. ttmem.h documents the effect of each on the figures.
enum class Error : std::int32_t {
    none = 0,
    unknown_chip = TTMEM_ERROR_UNKNOWN_CHIP,
    unknown_allocator = TTMEM_ERROR_UNKNOWN_ALLOCATOR,
    unknown_program = TTMEM_ERROR_UNKNOWN_PROGRAM,
    zero_size = TTMEM_ERROR_ZERO_SIZE,
    too_large = TTMEM_ERROR_TOO_LARGE,
    beyond_addresses = TTMEM_ERROR_BEYOND_ADDRESSES,
    double_free = TTMEM_ERROR_DOUBLE_FREE,
    unknown_free = TTMEM_ERROR_UNKNOWN_FREE,
    still_held = TTMEM_ERROR_STILL_HELD,
    replaced = TTMEM_ERROR_REPLACED,
    inherited_free = TTMEM_ERROR_INHERITED_FREE,
    definitions_full = TTMEM_ERROR_DEFINITIONS_FULL,
    wrong_space = TTMEM_ERROR_WRONG_SPACE,
    lost = TTMEM_ERROR_LOST,
    null = TTMEM_ERROR_NULL,
    not_utf8 = TTMEM_ERROR_NOT_UTF8,
    bad_value = TTMEM_ERROR_BAD_VALUE,
    internal = TTMEM_ERROR_INTERNAL,
};

/// The error in words.
inline const char* text(Error error) noexcept { return ttmem_error_text(static_cast<std::int32_t>(error)); }

/// Result of a call: an error or a number. It may be ignored.
class Result {
public:
    constexpr Result(std::int32_t value) noexcept : value_(value) {}

    /// Whether there was no error. While tracking is off there is none.
    constexpr bool ok() const noexcept { return value_ >= 0; }
    constexpr explicit operator bool() const noexcept { return ok(); }
    /// Number of the definition; 0 for other calls and while tracking is off. An error code may be passed on like a number.
    constexpr std::int32_t number() const noexcept { return value_; }
    constexpr Error error() const noexcept { return ok() ? Error::none : static_cast<Error>(value_); }
    /// The error in words.
    const char* text() const noexcept { return ttmem::text(error()); }

private:
    std::int32_t value_;
};

/// Memory of a buffer, numbered as TT-Metal's `BufferType`.
enum class BufferType : std::uint8_t {
    dram = TTMEM_BUFFER_TYPE_DRAM,
    l1 = TTMEM_BUFFER_TYPE_L1,
    system_memory = TTMEM_BUFFER_TYPE_SYSTEM_MEMORY,
    l1_small = TTMEM_BUFFER_TYPE_L1_SMALL,
    trace = TTMEM_BUFFER_TYPE_TRACE,
};

/// Class of a kernel.
enum class KernelType : std::uint8_t {
    application = TTMEM_KERNEL_CLASS_APPLICATION,
    fabric = TTMEM_KERNEL_CLASS_FABRIC,
    dispatch = TTMEM_KERNEL_CLASS_DISPATCH,
};

/// View of device numbers in an array, a vector or a braced list. It must not outlive them.
class Devices {
public:
    constexpr Devices(const std::int32_t* data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr Devices(std::initializer_list<std::int32_t> list) noexcept : data_(nullptr), size_(list.size()) {
        // A braced list lives as long as the call. As an initializer, compilers would warn about other uses.
        data_ = list.begin();
    }
    template <std::size_t N>
    constexpr Devices(const std::int32_t (&array)[N]) noexcept : data_(array), size_(N) {}
    template <class Container, class = std::enable_if_t<std::is_convertible_v<
                                   decltype(std::declval<const Container&>().data()), const std::int32_t*>>>
    constexpr Devices(const Container& container) noexcept : data_(container.data()), size_(container.size()) {}

    constexpr const std::int32_t* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const std::int32_t* data_;
    std::size_t size_;
};

/// Enables tracking with the settings of the environment.
inline Result enable() noexcept { return ttmem_enable(nullptr); }
/// Enables tracking.
inline Result enable(const ttmem_options& options) noexcept { return ttmem_enable(&options); }
/// Whether calls are recorded.
inline bool is_enabled() noexcept { return ttmem_is_enabled(); }
/// Disables tracking and removes the segment, unless it holds a failed allocation.
inline Result close() noexcept { return ttmem_close(); }
/// Version of the linked library.
inline const char* version() noexcept { return ttmem_version(); }
/// Defines an allocator for a set of devices, such as a mesh: each of its allocations is one record for all of them. The same set returns the
/// same number.
inline Result define_devices(Devices devices) noexcept { return ttmem_define_devices(devices.data(), devices.size()); }
/// Defines a call site by file, line, function, operation and tensor. An identical one returns the same number.
inline Result define_call_site(const ttmem_call_site& site) noexcept { return ttmem_define_call_site(&site); }
/// Marks a moment of the program, such as the end of a step.
inline Result mark(const char* name) noexcept { return ttmem_mark(name, nullptr); }
/// Marks a moment with its number.
inline Result mark(const char* name, std::uint64_t number) noexcept { return ttmem_mark(name, &number); }

namespace detail {

template <class T>
using if_enum = std::enable_if_t<std::is_enum_v<T>, int>;

/// Value of an enumerator; 0xff, which is no type, if it does not fit.
template <class T>
constexpr std::uint32_t value_of(T value) noexcept {
    const auto number = static_cast<std::int64_t>(static_cast<std::underlying_type_t<T>>(value));
    return number < 0 || number > 0xff ? 0xff : static_cast<std::uint32_t>(number);
}

/// TTMEM_SPACE_* of a buffer type; 0, which is refused, for other numbers.
constexpr std::uint32_t space_of(std::uint32_t buffer_type) noexcept {
    switch (buffer_type) {
        case TTMEM_BUFFER_TYPE_DRAM: return TTMEM_SPACE_DRAM;
        case TTMEM_BUFFER_TYPE_L1: return TTMEM_SPACE_L1;
        case TTMEM_BUFFER_TYPE_SYSTEM_MEMORY: return TTMEM_SPACE_HOST;
        case TTMEM_BUFFER_TYPE_L1_SMALL: return TTMEM_SPACE_L1_SMALL;
        case TTMEM_BUFFER_TYPE_TRACE: return TTMEM_SPACE_TRACE;
        default: return 0;
    }
}

/// A buffer with what the old client reports.
constexpr ttmem_buffer make_buffer(
    std::int32_t allocator, std::uint64_t size, std::uint32_t buffer_type, std::uint64_t address) noexcept {
    ttmem_buffer buffer{};
    buffer.allocator = allocator;
    buffer.space = space_of(buffer_type);
    buffer.address = address;
    buffer.requested = size;
    return buffer;
}

/// A circular buffer with what the old client reports.
constexpr ttmem_placement make_circular_buffer(std::int32_t allocator, std::uint64_t size, std::uint64_t cb_id) noexcept {
    ttmem_placement placement{};
    placement.allocator = allocator;
    placement.space = TTMEM_SPACE_CB;
    placement.address = cb_id;
    placement.bytes = size;
    return placement;
}

/// The device that was reported by number, or that there were several.
class Seen {
public:
    void note(std::int32_t device) noexcept {
        const std::int32_t before = only_.load(std::memory_order_relaxed);
        if (before != device && before != several) {
            std::int32_t none = unset;
            if (!only_.compare_exchange_strong(none, device, std::memory_order_relaxed) && none != device) {
                only_.store(several, std::memory_order_relaxed);
            }
        }
    }
    std::int32_t only() const noexcept { return only_.load(std::memory_order_relaxed); }

private:
    static constexpr std::int32_t unset = -1;
    static constexpr std::int32_t several = -2;
    std::atomic<std::int32_t> only_{unset};
};

inline Seen& seen() noexcept {
    static Seen instance;
    return instance;
}

}  // namespace detail

/// The old client's calls, by device number or, for a mesh, by a list of devices: one record for all of them.
///
/// `buffer_type` is TT-Metal's `BufferType`, `ttmem::BufferType` or its number; as an enumerator it may come before or after the address.
/// The size of a circular buffer is per core, that of a kernel the total over its cores.
class AllocationClient {
public:
    AllocationClient() = delete;

    /// Whether calls are recorded.
    static bool is_enabled() noexcept { return ttmem_is_enabled(); }

    static Result report_allocation(
        std::int32_t device_id, std::uint64_t size, std::uint32_t buffer_type, std::uint64_t address) noexcept {
        detail::seen().note(device_id);
        return ttmem_report_allocation(device_id, size, buffer_type, address);
    }
    template <class Type, detail::if_enum<Type> = 0>
    static Result report_allocation(
        std::int32_t device_id, std::uint64_t size, Type buffer_type, std::uint64_t address) noexcept {
        return report_allocation(device_id, size, detail::value_of(buffer_type), address);
    }
    template <class Type, detail::if_enum<Type> = 0>
    static Result report_allocation(
        std::int32_t device_id, std::uint64_t size, std::uint64_t address, Type buffer_type) noexcept {
        return report_allocation(device_id, size, detail::value_of(buffer_type), address);
    }
    static Result report_deallocation(std::int32_t device_id, std::uint64_t address) noexcept {
        return ttmem_report_deallocation(device_id, address);
    }
    /// Frees on the only device reported so far; an error if there were several.
    static Result report_deallocation(std::uint64_t address) noexcept {
        return ttmem_report_deallocation(detail::seen().only(), address);
    }

    static Result report_cb_allocation(std::int32_t device_id, std::uint64_t size, std::uint64_t cb_id) noexcept {
        return ttmem_report_cb_allocation(device_id, size, cb_id);
    }
    static Result report_cb_deallocation(std::int32_t device_id, std::uint64_t size, std::uint64_t cb_id) noexcept {
        return ttmem_report_cb_deallocation(device_id, size, cb_id);
    }

    static Result report_kernel_load(
        std::int32_t device_id, std::uint64_t size, std::uint64_t kernel_id, std::uint32_t kernel_type = 0) noexcept {
        return ttmem_report_kernel_load(device_id, size, kernel_id, kernel_type);
    }
    template <class Type, detail::if_enum<Type> = 0>
    static Result report_kernel_load(
        std::int32_t device_id, std::uint64_t size, std::uint64_t kernel_id, Type kernel_type) noexcept {
        return report_kernel_load(device_id, size, kernel_id, detail::value_of(kernel_type));
    }
    static Result report_kernel_unload(std::int32_t device_id, std::uint64_t kernel_id) noexcept {
        return ttmem_report_kernel_unload(device_id, kernel_id);
    }
    /// The old client's form, with a size, which is ignored.
    static Result report_kernel_unload(std::int32_t device_id, std::uint64_t /*size*/, std::uint64_t kernel_id) noexcept {
        return report_kernel_unload(device_id, kernel_id);
    }

    // Calls for all devices of a mesh.

    static Result report_allocation(
        Devices devices, std::uint64_t size, std::uint32_t buffer_type, std::uint64_t address) noexcept {
        const ttmem_buffer buffer = detail::make_buffer(define_devices(devices).number(), size, buffer_type, address);
        return refusal(buffer.allocator, [&] { return ttmem_alloc(&buffer); });
    }
    template <class Type, detail::if_enum<Type> = 0>
    static Result report_allocation(Devices devices, std::uint64_t size, Type buffer_type, std::uint64_t address) noexcept {
        return report_allocation(devices, size, detail::value_of(buffer_type), address);
    }
    template <class Type, detail::if_enum<Type> = 0>
    static Result report_allocation(Devices devices, std::uint64_t size, std::uint64_t address, Type buffer_type) noexcept {
        return report_allocation(devices, size, detail::value_of(buffer_type), address);
    }
    static Result report_deallocation(Devices devices, std::uint64_t address) noexcept {
        const std::int32_t allocator = define_devices(devices).number();
        return refusal(allocator, [&] { return ttmem_free_anywhere(allocator, address); });
    }
    static Result report_cb_allocation(Devices devices, std::uint64_t size, std::uint64_t cb_id) noexcept {
        const ttmem_placement placement = detail::make_circular_buffer(define_devices(devices).number(), size, cb_id);
        return refusal(placement.allocator, [&] { return ttmem_place(&placement); });
    }
    static Result report_cb_deallocation(Devices devices, std::uint64_t size, std::uint64_t cb_id) noexcept {
        const ttmem_placement placement = detail::make_circular_buffer(define_devices(devices).number(), size, cb_id);
        return refusal(placement.allocator, [&] { return ttmem_displace(&placement); });
    }
    static Result report_kernel_load(
        Devices devices, std::uint64_t size, std::uint64_t kernel_id, KernelType kernel_type = KernelType::application) noexcept {
        ttmem_kernel kernel{};
        kernel.allocator = define_devices(devices).number();
        kernel.id = kernel_id;
        kernel.bytes = size;
        kernel.kind = detail::value_of(kernel_type);
        return refusal(kernel.allocator, [&] { return ttmem_load_kernel(&kernel); });
    }
    static Result report_kernel_unload(Devices devices, std::uint64_t kernel_id) noexcept {
        const std::int32_t allocator = define_devices(devices).number();
        return refusal(allocator, [&] { return ttmem_unload_kernel(allocator, kernel_id); });
    }
    static Result report_kernel_unload(Devices devices, std::uint64_t /*size*/, std::uint64_t kernel_id) noexcept {
        return report_kernel_unload(devices, kernel_id);
    }

private:
    /// Returns the error of the devices, or else the result of a call. While tracking is off, the call is not made.
    template <class Call>
    static Result refusal(std::int32_t allocator, Call call) noexcept {
        return allocator <= 0 ? allocator : call();
    }
};

/// An allocated buffer that is freed when this object is destroyed. It can be moved, not copied.
class Allocation {
public:
    /// Owns no buffer.
    Allocation() noexcept = default;
    /// Reports an allocated buffer. `result` has the outcome.
    explicit Allocation(const ttmem_buffer& buffer) noexcept : buffer_(buffer), result_(0) {
        // A buffer that was not reported, because tracking was off, must not be freed.
        if (is_enabled()) {
            result_ = ttmem_alloc(&buffer_);
            held_ = result_.ok() || result_.error() == Error::still_held || result_.error() == Error::replaced;
        }
    }
    /// Reports a buffer on each of some devices.
    template <class Type, detail::if_enum<Type> = 0>
    Allocation(Devices devices, std::uint64_t size, Type buffer_type, std::uint64_t address) noexcept
        : Allocation(detail::make_buffer(define_devices(devices).number(), size, detail::value_of(buffer_type), address)) {}
    template <class Type, detail::if_enum<Type> = 0>
    Allocation(std::int32_t device_id, std::uint64_t size, Type buffer_type, std::uint64_t address) noexcept
        : Allocation(Devices(&device_id, 1), size, buffer_type, address) {}
    Allocation(Allocation&& other) noexcept
        : buffer_(other.buffer_), result_(other.result_), held_(std::exchange(other.held_, false)) {}
    Allocation& operator=(Allocation&& other) noexcept {
        if (this != &other) {
            reset();
            buffer_ = other.buffer_;
            result_ = other.result_;
            held_ = std::exchange(other.held_, false);
        }
        return *this;
    }
    ~Allocation() { reset(); }

    /// Frees the buffer now.
    Result reset() noexcept {
        if (!std::exchange(held_, false)) {
            return 0;
        }
        return buffer_.space == TTMEM_SPACE_L1_CORE ? ttmem_free_on_cores(&buffer_)
                                                    : ttmem_free(buffer_.allocator, buffer_.space, buffer_.address);
    }
    /// Gives up ownership without freeing the buffer.
    void release() noexcept { held_ = false; }
    /// Whether this object owns a buffer.
    bool is_held() const noexcept { return held_; }
    /// Result of the allocation.
    Result result() const noexcept { return result_; }

private:
    ttmem_buffer buffer_{};
    Result result_{0};
    bool held_ = false;
};

}  // namespace ttmem

#endif  // TTMEM_HPP
