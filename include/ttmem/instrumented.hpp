// Circular buffers and kernels, tracked where they are made.
//
// Two calls that do what TT-Metal's own do, give back what those give back, and publish what came of it:
//
//     using namespace ttmem::instrumented;
//
//     OnDevice scope(device);                                              // a device, or a mesh device
//     ProgramScope tracked(program);                                       // its end takes everything back
//     auto cb = CreateCircularBufferWithTracking(program, cores, config);  // as CreateCircularBuffer(program, cores, config)
//     auto kernel = AddKernelWithTracking(program, "reader.cpp", cores, DataMovementConfig{});  // as CreateKernel(...)
//
// No header of TT-Metal is included: its types are known by what they offer, and its functions are found by the types of the arguments.
// What the wrapped call throws passes through, and then nothing is published; what goes wrong here is swallowed, and the handle is returned.
// While tracking is off, the call is made and nothing else. docs/cpp.md has the shapes that are known.
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

/// What a kernel takes on each core where nobody can say: the guess of the old tools. Such sizes are marked as estimates.
inline constexpr std::uint64_t kEstimatedKernelBytes = 50 * 1024;

/// How it went so far, in this process.
struct Counts {
    /// Calls that were published.
    std::uint64_t tracked = 0;
    /// Calls that were made, but not published: no device was known.
    std::uint64_t without_device = 0;
    /// Calls that were made, but not published: no size was known, something threw while it was asked, or the tracker refused.
    std::uint64_t failed = 0;
};

/// How it went so far. While tracking is off nothing is counted.
inline Counts counts() noexcept {
    const auto& tally = detail::tally();
    return {tally.tracked.load(), tally.without_device.load(), tally.failed.load()};
}

/// Says, for as long as it lives and on this thread, which device what is made is for. The innermost one counts; a device among a call's
/// own arguments comes first.
class OnDevice {
public:
    template <class Device, class = std::enable_if_t<detail::is_device<std::remove_reference_t<Device>>>>
    explicit OnDevice(Device&& device) : outer_(detail::innermost_device()) {
        // All of a mesh, or nothing.
        const auto keep = [&] {
            detail::DeviceList all;
            detail::read_devices(device, all);
            devices_ = std::move(all);
        };
        detail::swallow(keep, detail::tally().failed);
        detail::innermost_device() = &devices_;
    }
    /// By numbers: a list in braces, an array, a vector; or one.
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

/// Takes back everything that was published for a program. One that was moved from is still known by its address.
template <class Program>
void ForgetProgram(Program& program) noexcept {
    detail::swallow([&] { detail::registry().forget(detail::identity_of(program)); }, detail::tally().failed);
}

/// Follows a program to the end of the scope, where everything that was published for it is taken back, wherever it was moved meanwhile.
/// What was published before, perhaps for another program at the same address, is taken back first. What is made on this thread
/// without a program belongs to the innermost one.
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

// Functions are found by the types of the arguments, wherever those live.
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

// ---- what is known of a call ----

/// Read before the call is made, because arguments may be moved from.
struct Facts {
    DeviceList devices;
    Identity program;
    CoreList cores;
    /// Whether an argument named cores.
    bool on_cores = false;
    /// On each core; 0 if nobody says.
    std::uint64_t bytes = 0;
    /// Whether it is a view of a buffer, and that buffer's address.
    bool view = false;
    std::uint64_t address = 0;
    /// Of all of the program's kernels before this one, where it tells.
    std::uint64_t program_bytes = 0;
    /// What comes of it: nothing while tracking is off, and nothing more once something threw.
    enum class State : std::uint8_t { off, on, broken } state = State::off;
};

/// Every function that gets somebody else's types is called by its full name: their namespaces may have one of the same name.
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

/// A circular buffer's: a device or a program comes first, cores and configuration behind it.
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

/// A kernel's: the program comes first.
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

// ---- what is published ----

/// Publishes something on the devices that are known: `tell` gets allocator, program and cores.
template <class Tell>
void publish(const Facts& facts, Tell tell) {
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
        // Of what lies on no core nothing is held.
        return facts.on_cores && facts.cores.count() == 0 ? TTMEM_ERROR_ZERO_SIZE : tell(allocator, program, cores);
    });
    // The same view twice is one, and held.
    const bool held = done.ok() || done.error() == Error::still_held;
    (held ? tally().tracked : tally().failed).fetch_add(1);
}

inline void publish_circular_buffer(const Facts& facts) {
    publish(facts, [&](std::int32_t allocator, std::uint32_t program, std::int32_t cores) {
        ttmem_placement it{};
        it.allocator = allocator;
        it.space = TTMEM_SPACE_CB;
        // Where it will lie is decided when the program is compiled; a view lies where its buffer does.
        it.address = facts.view ? facts.address : registry().fresh(facts.bytes);
        it.bytes = facts.bytes;
        it.program = program;
        it.cores = cores;
        it.flags = facts.view ? TTMEM_FLAG_VIEW + 0u + TTMEM_FLAG_UNFOLLOWED : TTMEM_FLAG_UNPLACED + 0u;
        return ttmem_place(&it);
    });
}

inline void publish_kernel(const Facts& facts, std::uint64_t measured) {
    publish(facts, [&](std::int32_t allocator, std::uint32_t program, std::int32_t cores) {
        const std::uint64_t bytes = measured != 0 ? measured : kEstimatedKernelBytes;
        ttmem_kernel it{};
        it.allocator = allocator;
        it.program = program;
        it.id = registry().fresh();
        // Where its cores cannot be told, it is its size on all of them together.
        it.bytes = cores > 0 || !facts.on_cores ? bytes : bytes * facts.cores.count();
        it.cores = cores;
        it.flags = TTMEM_FLAG_UNFOLLOWED + (measured != 0 ? 0u : TTMEM_FLAG_ESTIMATED + 0u);
        return ttmem_load_kernel(&it);
    });
}

/// What stands for the result of a call that has none.
struct Nothing {};

/// Makes a call, and has it told. Whatever it returns is returned: a value, a reference, or nothing.
template <class Call, class Tell>
decltype(auto) call_and_tell(Facts& facts, Call call, Tell tell) {
    using Returned = decltype(call());
    const auto tell_of = [&](auto& returned) {
        if (facts.state == Facts::State::on) {
            swallow([&] { tell(returned); }, tally().failed);
        }
    };
    if constexpr (std::is_void_v<Returned>) {
        call();
        Nothing nothing;
        tell_of(nothing);
    } else {
        Returned&& returned = call();
        tell_of(returned);
        return static_cast<Returned>(std::forward<Returned>(returned));
    }
}

template <class... Args>
decltype(auto) make_circular_buffer(Facts& facts, Args&&... args) {
    detail::gather(facts, [&] { detail::read_circular_buffer(facts, args...); });
    const auto make = [&]() -> decltype(auto) { return CreateCircularBufferCall{}(std::forward<Args>(args)...); };
    return detail::call_and_tell(facts, make, [&](auto&) { publish_circular_buffer(facts); });
}

template <class Call, class Program, class... Args>
decltype(auto) make_kernel(Facts& facts, Call call, Program&& program, Args&&... args) {
    detail::gather(facts, [&] { detail::read_kernel(facts, program, args...); });
    const auto make = [&]() -> decltype(auto) { return call(std::forward<Program>(program), std::forward<Args>(args)...); };
    return detail::call_and_tell(facts, make, [&](auto& handle) {
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

/// With a device in front that the wrapped call does not take.
template <class Make, class Device, class... Args>
decltype(auto) make_on_device(Make make, Device& device, Args&&... args) {
    Facts facts;
    detail::gather(facts, [&] { detail::read_devices(device, facts.devices); });
    return make(facts, std::forward<Args>(args)...);
}

}  // namespace detail

/// `CreateCircularBuffer` with the same arguments: `(program, cores, config)`, or as it once was `(device, data_formats, config)`. A device may
/// come in front that the call itself does not take. Returns what that returns.
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

/// `program.add_kernel` with the other arguments if there is such a one, else `CreateKernel` with all of them. A device may come in front
/// that the call itself does not take. Returns what that returns.
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
