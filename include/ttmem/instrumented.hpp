// Wrappers that report circular buffers and kernels when they are created.
//
// Two functions that call TT-Metal's own, return their result and report what was created:
//
//     using namespace ttmem::instrumented;
//
//     OnDevice scope(device);                                              // a device, or a mesh device
//     ProgramScope tracked(program);                                       // its end removes everything
//     auto cb = CreateCircularBufferWithTracking(program, cores, config);  // as CreateCircularBuffer(program, cores, config)
//     auto kernel = AddKernelWithTracking(program, "reader.cpp", cores, DataMovementConfig{});  // as CreateKernel(...)
//
// No header of TT-Metal is included: its types are recognised by their members, its functions by argument-dependent lookup.
// Exceptions of the wrapped call pass through, and nothing is reported then; errors in here are ignored, and the handle is returned.
// While tracking is off, only the call is made. docs/cpp.md lists the supported signatures.
#ifndef TTMEM_INSTRUMENTED_HPP
#define TTMEM_INSTRUMENTED_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "../ttmem.hpp"
#include "instrumented/registry.hpp"
#include "instrumented/shapes.hpp"

namespace ttmem::instrumented {

/// Size of a kernel per core where it is unknown: the estimate of the old tools. Such sizes are marked as estimates.
inline constexpr std::uint64_t kEstimatedKernelBytes = 50 * 1024;

/// Counters of wrapped calls in this process.
struct Counts {
    /// Calls that were reported.
    std::uint64_t tracked = 0;
    /// Calls that were not reported because the device is unknown.
    std::uint64_t without_device = 0;
    /// Calls that were not reported because the size is unknown, a query threw, or the tracker refused the report.
    std::uint64_t failed = 0;
};

/// Returns the counters. While tracking is off nothing is counted.
inline Counts counts() noexcept {
    const auto& tally = detail::tally();
    return {tally.tracked.load(), tally.without_device.load(), tally.failed.load()};
}

/// Sets the device of wrapped calls on this thread while this object lives. The innermost one counts; a device among a call's own
/// arguments takes precedence.
class OnDevice {
public:
    template <class Device, class = std::enable_if_t<detail::is_device<std::remove_reference_t<Device>>>>
    explicit OnDevice(Device&& device) : outer_(detail::innermost_device()) {
        // Either all devices of a mesh, or none.
        const auto keep = [&] {
            detail::DeviceList all;
            detail::read_devices(device, all);
            devices_ = std::move(all);
        };
        detail::swallow(keep, detail::tally().failed);
        detail::innermost_device() = &devices_;
    }
    /// Device numbers in a braced list, an array or a vector.
    explicit OnDevice(Devices devices) : outer_(detail::innermost_device()) {
        const auto keep = [&] { devices_.assign(devices.data(), devices.data() + devices.size()); };
        detail::swallow(keep, detail::tally().failed);
        detail::innermost_device() = &devices_;
    }
    explicit OnDevice(std::int32_t device) : OnDevice(Devices(&device, 1)) {}
    ~OnDevice() { detail::innermost_device() = outer_; }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

private:
    detail::DeviceList devices_;
    const detail::DeviceList* outer_;
};

/// Removes everything that was reported for a program. A moved-from program is still known by its address.
template <class Program>
void ForgetProgram(Program& program) noexcept {
    detail::swallow([&] { detail::registry().forget(detail::identity_of(program)); }, detail::tally().failed);
}

/// Removes everything that was reported for a program at the end of the scope, even if the program was moved meanwhile. At its begin, it
/// removes what was reported before, which may belong to another program at the same address. Calls on this thread that name no program
/// belong to the innermost scope.
class ProgramScope {
public:
    template <class Program, class = std::enable_if_t<!std::is_same_v<std::remove_const_t<Program>, ProgramScope>>>
    explicit ProgramScope(Program& program) : outer_(detail::innermost_program()) {
        const auto begin = [&] {
            identity_ = detail::identity_of(program);
            detail::registry().forget(identity_);
        };
        detail::swallow(begin, detail::tally().failed);
        detail::innermost_program() = &identity_;
    }
    ~ProgramScope() {
        detail::innermost_program() = outer_;
        detail::swallow([&] { detail::registry().forget(identity_); }, detail::tally().failed);
    }
    ProgramScope(const ProgramScope&) = delete;
    ProgramScope& operator=(const ProgramScope&) = delete;

private:
    detail::Identity identity_;
    const detail::Identity* outer_;
};

namespace detail {

// ---- the calls that are wrapped ----

// Functions are found by the types of the arguments, in any namespace.
struct CreateCircularBufferCall {
    template <class... Args>
    auto operator()(Args&&... args) const -> decltype(CreateCircularBuffer(std::forward<Args>(args)...)) {
        return CreateCircularBuffer(std::forward<Args>(args)...);
    }
};
struct CreateKernelCall {
    template <class... Args>
    auto operator()(Args&&... args) const -> decltype(CreateKernel(std::forward<Args>(args)...)) {
        return CreateKernel(std::forward<Args>(args)...);
    }
};
struct AddKernelCall {
    template <class Program, class... Args>
    auto operator()(Program&& program, Args&&... args) const
        -> decltype(std::forward<Program>(program).add_kernel(std::forward<Args>(args)...)) {
        return std::forward<Program>(program).add_kernel(std::forward<Args>(args)...);
    }
};

// ---- facts of a call ----

/// Read before the call is made, because arguments may be moved from.
struct Facts {
    DeviceList devices;
    Identity program;
    CoreList cores;
    /// Whether an argument named cores.
    bool on_cores = false;
    /// Bytes on each core; 0 if unknown.
    std::uint64_t bytes = 0;
    /// Whether it is a view of a buffer, and that buffer's address.
    bool view = false;
    std::uint64_t address = 0;
    /// Bytes of all earlier kernels of the program, if known.
    std::uint64_t program_bytes = 0;
    /// Whether to report the call: not while tracking is off, and not after an exception.
    enum class State : std::uint8_t { off, on, broken } state = State::off;
};

/// Functions that take foreign types are called by their qualified names: the types' namespaces may have functions of the same name.
template <class Argument>
void read_cores_of(Argument& argument, Facts& facts) {
    if constexpr (is_cores<Argument>) {
        facts.on_cores = true;
        detail::read_cores(argument, facts.cores);
    }
}

template <class Program>
void read_program(Program& program, Facts& facts) {
    facts.program = detail::identity_of(program);
    if (facts.devices.empty()) {
        detail::read_device_of_program(program, facts.devices);
    }
}

/// Facts of a circular buffer: device or program first, then cores and configuration.
template <class First, class... Rest>
void read_circular_buffer(Facts& facts, First& first, Rest&... rest) {
    if constexpr (is_device_in_first_place<First>) {
        detail::read_devices(first, facts.devices);
    } else {
        detail::read_program(first, facts);
    }
    (detail::read_cores_of(rest, facts), ...);
    (detail::read_configuration(rest, facts.bytes, facts.view, facts.address), ...);
}

/// Facts of a kernel: the program comes first.
template <class Program, class... Rest>
void read_kernel(Facts& facts, Program& program, Rest&... rest) {
    detail::read_program(program, facts);
    facts.program_bytes = detail::kernel_bytes_of_program(program);
    (detail::read_cores_of(rest, facts), ...);
    ((facts.bytes = facts.bytes != 0 ? facts.bytes : detail::binary_bytes(rest)), ...);
}

/// Reads facts, if tracking is on.
template <class Read>
void gather(Facts& facts, Read read) {
    if (facts.state == Facts::State::broken || !is_enabled()) {
        return;
    }
    facts.state = Facts::State::broken;
    const auto work = [&] {
        read();
        facts.state = Facts::State::on;
    };
    swallow(work, tally().failed);
}

// ---- reports ----

/// Makes a report for the devices of a call: `report` gets allocator, program and cores.
template <class Report>
void publish(const Facts& facts, Report report) {
    const DeviceList none;
    const DeviceList& outer = innermost_device() != nullptr ? *innermost_device() : none;
    const DeviceList& devices = facts.devices.empty() ? outer : facts.devices;
    if (devices.empty()) {
        tally().without_device.fetch_add(1);
        return;
    }
    const bool bare = !facts.program.is_known() && innermost_program() != nullptr;
    const Identity& owner = bare ? *innermost_program() : facts.program;
    const std::int32_t allocator = define_devices(devices).number();
    std::int32_t cores = 0;
    if (facts.cores.are_known()) {
        cores = ttmem_define_cores(facts.cores.data(), facts.cores.size());
    }
    const Result done = registry().with_program(owner, allocator, [&](std::uint32_t program) -> Result {
        // Without cores there is nothing to report.
        return facts.on_cores && facts.cores.count() == 0 ? TTMEM_ERROR_ZERO_SIZE : report(allocator, program, cores);
    });
    // An identical view counts once.
    const bool held = done.ok() || done.error() == Error::still_held;
    (held ? tally().tracked : tally().failed).fetch_add(1);
}

inline void publish_circular_buffer(const Facts& facts) {
    publish(facts, [&](std::int32_t allocator, std::uint32_t program, std::int32_t cores) {
        ttmem_placement placement{};
        placement.allocator = allocator;
        placement.space = TTMEM_SPACE_CB;
        // The address is decided when the program is compiled; a view has the address of its buffer.
        placement.address = facts.view ? facts.address : registry().fresh(facts.bytes);
        placement.bytes = facts.bytes;
        placement.program = program;
        placement.cores = cores;
        placement.flags = facts.view ? TTMEM_FLAG_VIEW + 0u + TTMEM_FLAG_UNFOLLOWED : TTMEM_FLAG_UNPLACED + 0u;
        return ttmem_place(&placement);
    });
}

inline void publish_kernel(const Facts& facts, std::uint64_t measured) {
    publish(facts, [&](std::int32_t allocator, std::uint32_t program, std::int32_t cores) {
        const std::uint64_t bytes = measured != 0 ? measured : kEstimatedKernelBytes;
        ttmem_kernel kernel{};
        kernel.allocator = allocator;
        kernel.program = program;
        kernel.id = registry().fresh();
        // If the cores are unknown, the size is the total over them.
        kernel.bytes = cores > 0 || !facts.on_cores ? bytes : bytes * facts.cores.count();
        kernel.cores = cores;
        kernel.flags = TTMEM_FLAG_UNFOLLOWED + (measured != 0 ? 0u : TTMEM_FLAG_ESTIMATED + 0u);
        return ttmem_load_kernel(&kernel);
    });
}

/// The result of a call that returns void.
struct Nothing {};

/// Makes a call and reports it. Returns what the call returns: a value, a reference, or nothing.
template <class Call, class Report>
decltype(auto) call_and_report(Facts& facts, Call call, Report report) {
    using Returned = decltype(call());
    const auto report_result = [&](auto& returned) {
        if (facts.state == Facts::State::on) {
            swallow([&] { report(returned); }, tally().failed);
        }
    };
    if constexpr (std::is_void_v<Returned>) {
        call();
        Nothing nothing;
        report_result(nothing);
    } else {
        Returned&& returned = call();
        report_result(returned);
        return static_cast<Returned>(std::forward<Returned>(returned));
    }
}

template <class... Args>
decltype(auto) make_circular_buffer(Facts& facts, Args&&... args) {
    detail::gather(facts, [&] { detail::read_circular_buffer(facts, args...); });
    const auto make = [&]() -> decltype(auto) { return CreateCircularBufferCall{}(std::forward<Args>(args)...); };
    return detail::call_and_report(facts, make, [&](auto&) { publish_circular_buffer(facts); });
}

template <class Call, class Program, class... Args>
decltype(auto) make_kernel(Facts& facts, Call call, Program&& program, Args&&... args) {
    detail::gather(facts, [&] { detail::read_kernel(facts, program, args...); });
    const auto make = [&]() -> decltype(auto) { return call(std::forward<Program>(program), std::forward<Args>(args)...); };
    return detail::call_and_report(facts, make, [&](auto& handle) {
        std::uint64_t measured = detail::binary_bytes(handle);
        if (measured == 0) {
            measured = facts.bytes;
        }
        if (measured == 0) {
            const std::uint64_t now = detail::kernel_bytes_of_program(program);
            measured = now > facts.program_bytes ? now - facts.program_bytes : 0;
        }
        publish_kernel(facts, measured);
    });
}

/// Handles a leading device that the wrapped call does not take.
template <class Make, class Device, class... Args>
decltype(auto) make_on_device(Make make, Device& device, Args&&... args) {
    Facts facts;
    detail::gather(facts, [&] { detail::read_devices(device, facts.devices); });
    return make(facts, std::forward<Args>(args)...);
}

}  // namespace detail

/// Calls `CreateCircularBuffer` with the same arguments: `(program, cores, config)`, or the older `(device, data_formats, config)`. A device may
/// come first that the call itself does not take. Returns the result of the call.
template <class First, class... Rest>
decltype(auto) CreateCircularBufferWithTracking(First&& first, Rest&&... rest) {
    const auto make = [](detail::Facts& facts, auto&&... args) -> decltype(auto) {
        return detail::make_circular_buffer(facts, std::forward<decltype(args)>(args)...);
    };
    if constexpr (std::is_invocable_v<detail::CreateCircularBufferCall, First, Rest...>) {
        detail::Facts facts;
        return make(facts, std::forward<First>(first), std::forward<Rest>(rest)...);
    } else {
        static_assert(std::is_invocable_v<detail::CreateCircularBufferCall, Rest...> && detail::is_device<std::remove_reference_t<First>>,
                      "no CreateCircularBuffer takes these arguments");
        return detail::make_on_device(make, first, std::forward<Rest>(rest)...);
    }
}

/// Calls `program.add_kernel` with the other arguments if it exists, else `CreateKernel` with all of them. A device may come first that the
/// call itself does not take. Returns the result of the call.
template <class First, class... Rest>
decltype(auto) AddKernelWithTracking(First&& first, Rest&&... rest) {
    const auto make = [](detail::Facts& facts, auto&&... args) -> decltype(auto) {
        if constexpr (std::is_invocable_v<detail::AddKernelCall, decltype(args)...>) {
            return detail::make_kernel(facts, detail::AddKernelCall{}, std::forward<decltype(args)>(args)...);
        } else {
            static_assert(std::is_invocable_v<detail::CreateKernelCall, decltype(args)...>,
                          "neither program.add_kernel nor CreateKernel takes these arguments");
            return detail::make_kernel(facts, detail::CreateKernelCall{}, std::forward<decltype(args)>(args)...);
        }
    };
    if constexpr (detail::is_device<std::remove_reference_t<First>> && !std::is_invocable_v<detail::AddKernelCall, First, Rest...> &&
                  !std::is_invocable_v<detail::CreateKernelCall, First, Rest...>) {
        return detail::make_on_device(make, first, std::forward<Rest>(rest)...);
    } else {
        detail::Facts facts;
        return make(facts, std::forward<First>(first), std::forward<Rest>(rest)...);
    }
}

}  // namespace ttmem::instrumented

#endif  // TTMEM_INSTRUMENTED_HPP
