// How the wrappers in instrumented.hpp recognise TT-Metal's types: by their members, not by their names.
//
// Not to be included by itself.
#ifndef TTMEM_INSTRUMENTED_SHAPES_HPP
#define TTMEM_INSTRUMENTED_SHAPES_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "registry.hpp"

namespace ttmem::instrumented::detail {

// ---- detecting members ----

template <class Void, template <class> class Expression, class T>
struct offers_of : std::false_type {};
template <template <class> class Expression, class T>
struct offers_of<std::void_t<Expression<T>>, Expression, T> : std::true_type {};

/// Whether an expression can be formed with an lvalue of the type.
template <template <class> class Expression, class T>
inline constexpr bool offers = offers_of<void, Expression, T>::value;

// clang-format off
#define TTMEM_DETAIL_EXPRESSION(name, expression) template <class T> using name = decltype(std::declval<T&>().expression)
TTMEM_DETAIL_EXPRESSION(get_device_ids, get_device_ids());
TTMEM_DETAIL_EXPRESSION(get_devices, get_devices());
TTMEM_DETAIL_EXPRESSION(id_call, id());
TTMEM_DETAIL_EXPRESSION(get_id_call, get_id());
TTMEM_DETAIL_EXPRESSION(device_call, device());
TTMEM_DETAIL_EXPRESSION(get_runtime_id_call, get_runtime_id());
TTMEM_DETAIL_EXPRESSION(circular_buffers_call, circular_buffers());
TTMEM_DETAIL_EXPRESSION(get_kernel_bins_size_call, get_kernel_bins_size());
TTMEM_DETAIL_EXPRESSION(total_size_call, total_size());
TTMEM_DETAIL_EXPRESSION(total_size_member, total_size + 0);
TTMEM_DETAIL_EXPRESSION(num_tiles_call, num_tiles() * std::declval<T&>().tile_size());
TTMEM_DETAIL_EXPRESSION(num_tiles_member, num_tiles * std::declval<T&>().tile_size);
TTMEM_DETAIL_EXPRESSION(num_pages_call, num_pages() * std::declval<T&>().page_size());
TTMEM_DETAIL_EXPRESSION(num_pages_member, num_pages * std::declval<T&>().page_size);
TTMEM_DETAIL_EXPRESSION(globally_allocated_address_call, globally_allocated_address());
TTMEM_DETAIL_EXPRESSION(globally_allocated_address_member, globally_allocated_address);
TTMEM_DETAIL_EXPRESSION(address_offset_call, address_offset());
TTMEM_DETAIL_EXPRESSION(buffer_address_call, buffer_address() + std::declval<T&>().config_address());
TTMEM_DETAIL_EXPRESSION(binary_size_call, binary_size());
TTMEM_DETAIL_EXPRESSION(compute_binary_call, compute_binary().size());
TTMEM_DETAIL_EXPRESSION(data_movement_binary_call, data_movement_binary().size());
TTMEM_DETAIL_EXPRESSION(x_and_y, x + std::declval<T&>().y);
TTMEM_DETAIL_EXPRESSION(start_and_end_coord, start_coord.x + std::declval<T&>().end_coord.y);
TTMEM_DETAIL_EXPRESSION(start_and_end, start.x + std::declval<T&>().end.y);
TTMEM_DETAIL_EXPRESSION(ranges_call, ranges());
TTMEM_DETAIL_EXPRESSION(begin_call, begin());
TTMEM_DETAIL_EXPRESSION(has_value_call, has_value());
TTMEM_DETAIL_EXPRESSION(mesh_device_type, get_mesh_device().operator*());
#undef TTMEM_DETAIL_EXPRESSION
// clang-format on

template <class T>
using pointed_at = std::void_t<decltype(*std::declval<T&>()), decltype(static_cast<bool>(std::declval<T&>()))>;

/// Dereferences a plain or smart pointer; other arguments are returned unchanged.
template <class T, class = void>
struct Target {
    using type = T;
    static T* of(T& it) noexcept { return std::addressof(it); }
};
template <class T>
struct Target<T, std::enable_if_t<(std::is_class_v<T> || std::is_pointer_v<std::remove_const_t<T>>)&&!std::is_void_v<
                     std::remove_pointer_t<T>>, pointed_at<T>>> {
    using type = std::remove_reference_t<decltype(*std::declval<T&>())>;
    static type* of(T& it) { return it ? std::addressof(*it) : nullptr; }
};

/// Converts a number of any type; negative numbers become 0.
template <class T>
std::uint64_t natural(const T& number) {
    if constexpr (std::is_unsigned_v<T>) {
        return number;
    } else {
        const auto it = static_cast<std::int64_t>(number);
        return it < 0 ? 0 : static_cast<std::uint64_t>(it);
    }
}

// ---- devices ----

/// Whether a type is a program rather than a device: an old program has an `id()`, too.
template <class T>
inline constexpr bool is_program = offers<device_call, T> || offers<get_runtime_id_call, T> ||
                                   offers<circular_buffers_call, T> || offers<get_id_call, T> ||
                                   offers<get_kernel_bins_size_call, T>;

/// Whether an argument is a device or a mesh of devices.
template <class T>
inline constexpr bool is_device =
    (offers<get_device_ids, typename Target<T>::type> || offers<get_devices, typename Target<T>::type> ||
     offers<id_call, typename Target<T>::type>)&&!is_program<typename Target<T>::type>;

/// Whether the first argument of a call, which may be a program as well, is a device. A type that has only an `id()` is a device only behind a
/// pointer: devices were always passed by pointer, programs never.
template <class T>
inline constexpr bool is_device_in_first_place =
    is_device<T> && (!std::is_same_v<typename Target<T>::type, T> || offers<get_device_ids, T> || offers<get_devices, T> ||
                     offers<mesh_device_type, std::remove_const_t<T>>);

template <class Number>
void add_device(Number number, DeviceList& devices) {
    const auto it = static_cast<std::int64_t>(number);
    const bool fits = it >= 0 && it <= std::numeric_limits<std::int32_t>::max();
    devices.push_back(fits ? static_cast<std::int32_t>(it) : -1);
}

/// Collects the devices of an argument. A null pointer has none.
template <class Argument>
void read_devices(Argument& argument, DeviceList& devices) {
    using Device = typename Target<Argument>::type;
    Device* const device = Target<Argument>::of(argument);
    if (device == nullptr) {
        return;
    }
    if constexpr (offers<get_device_ids, Device>) {
        for (auto&& id : device->get_device_ids()) {
            detail::add_device(id, devices);
        }
    } else if constexpr (offers<get_devices, Device>) {
        for (auto&& one : device->get_devices()) {
            detail::read_devices(one, devices);
        }
    } else {
        if constexpr (offers<mesh_device_type, std::remove_const_t<Device>>) {
            // It may be a mesh, whose own id is no device number.
            using Mesh = std::remove_reference_t<mesh_device_type<std::remove_const_t<Device>>>;
            static_assert(sizeof(Mesh) > 0, "include <tt-metalium/mesh_device.hpp>: a device may be a mesh");
            if (const auto* mesh = dynamic_cast<const Mesh*>(device)) {
                return detail::read_devices(*mesh, devices);
            }
        }
        detail::add_device(device->id(), devices);
    }
}

// ---- programs ----

/// Identity of a program. A runtime id is none: it can be set, and is 0 until then.
template <class Argument>
Identity identity_of(Argument& argument) {
    using Program = typename Target<Argument>::type;
    Program* const program = Target<Argument>::of(argument);
    if (program == nullptr) {
        return {};
    }
    if constexpr (offers<get_id_call, Program>) {
        return {Identity::By::number, natural(program->get_id())};
    } else if constexpr (offers<id_call, Program>) {
        return {Identity::By::number, natural(program->id())};
    } else {
        return {Identity::By::address, reinterpret_cast<std::uintptr_t>(program)};
    }
}

/// Collects the device of a program, if it has one.
template <class Argument>
void read_device_of_program(Argument& argument, DeviceList& devices) {
    using Program = typename Target<Argument>::type;
    if constexpr (offers<device_call, Program>) {
        if (Program* const program = Target<Argument>::of(argument)) {
            auto&& device = program->device();
            detail::read_devices(device, devices);
        }
    }
}

/// Bytes of all kernels of a program on each core; 0 if unknown.
template <class Argument>
std::uint64_t kernel_bytes_of_program(Argument& argument) {
    using Program = typename Target<Argument>::type;
    if constexpr (offers<get_kernel_bins_size_call, Program>) {
        if (Program* const program = Target<Argument>::of(argument)) {
            return natural(program->get_kernel_bins_size());
        }
    }
    return 0;
}

// ---- kernels ----

template <class Binary>
std::uint64_t bytes_of(const Binary& binary) {
    using Element = std::remove_reference_t<decltype(*std::declval<const Binary&>().data())>;
    return static_cast<std::uint64_t>(binary.size()) * sizeof(Element);
}

/// Size of a kernel, or of the kernel behind a handle; 0 if unknown.
template <class Argument>
std::uint64_t binary_bytes(Argument& argument) {
    using Kernel = typename Target<Argument>::type;
    [[maybe_unused]] Kernel* const kernel = Target<Argument>::of(argument);
    std::uint64_t bytes = 0;
    if constexpr (offers<binary_size_call, Kernel>) {
        bytes = kernel == nullptr ? 0 : natural(kernel->binary_size());
    } else {
        if constexpr (offers<compute_binary_call, Kernel>) {
            bytes += kernel == nullptr ? 0 : detail::bytes_of(kernel->compute_binary());
        }
        if constexpr (offers<data_movement_binary_call, Kernel>) {
            bytes += kernel == nullptr ? 0 : detail::bytes_of(kernel->data_movement_binary());
        }
    }
    return bytes;
}

// ---- configurations of circular buffers ----

/// Address in an optional or a number that is not 0.
template <class Address>
bool read_address(const Address& address, std::uint64_t& value) {
    if constexpr (offers<has_value_call, const Address>) {
        if (!address.has_value()) {
            return false;
        }
        value = natural(*address);
        return true;
    } else {
        value = natural(address);
        return value != 0;
    }
}

/// Reads the size of a circular buffer per core, and its address if it is a view of a buffer. The last argument that has them counts.
template <class Argument>
void read_configuration(Argument& argument, std::uint64_t& bytes, bool& view, std::uint64_t& address) {
    using Config = typename Target<Argument>::type;
    [[maybe_unused]] Config* const config = Target<Argument>::of(argument);
    if (config == nullptr) {
        return;
    }
    if constexpr (offers<total_size_call, Config>) {
        bytes = natural(config->total_size());
    } else if constexpr (offers<total_size_member, Config>) {
        bytes = natural(config->total_size);
    } else if constexpr (offers<num_tiles_call, Config>) {
        bytes = natural(config->num_tiles()) * natural(config->tile_size());
    } else if constexpr (offers<num_tiles_member, Config>) {
        bytes = natural(config->num_tiles) * natural(config->tile_size);
    } else if constexpr (offers<num_pages_call, Config>) {
        bytes = natural(config->num_pages()) * natural(config->page_size());
    } else if constexpr (offers<num_pages_member, Config>) {
        bytes = natural(config->num_pages) * natural(config->page_size);
    }
    std::uint64_t where = 0;
    if constexpr (offers<globally_allocated_address_call, Config>) {
        if (detail::read_address(config->globally_allocated_address(), where)) {
            if constexpr (offers<address_offset_call, Config>) {
                where += natural(config->address_offset());
            }
            view = true;
            address = where;
        }
    } else if constexpr (offers<globally_allocated_address_member, Config>) {
        if (detail::read_address(config->globally_allocated_address, where)) {
            view = true;
            address = where;
        }
    } else if constexpr (offers<buffer_address_call, Config>) {
        // A global circular buffer, which is a buffer of its own.
        view = true;
        address = natural(config->buffer_address());
    }
}

// ---- cores ----

/// Rectangles of cores.
class CoreList {
public:
    void add(std::uint64_t x0, std::uint64_t y0, std::uint64_t x1, std::uint64_t y1) {
        // Records have 16 columns and rows. Cores beyond are counted, but not distinguished.
        constexpr std::uint64_t most = 15;
        if (x0 > x1 || y0 > y1) {
            return;
        }
        const bool fits = x1 <= most && y1 <= most;
        beyond_ = beyond_ || !fits;
        count_ += (x1 - x0 + 1) * (y1 - y0 + 1);
        if (fits) {
            ranges_.push_back({static_cast<std::uint32_t>(x0), static_cast<std::uint32_t>(y0),
                               static_cast<std::uint32_t>(x1), static_cast<std::uint32_t>(y1)});
        }
    }

    /// Whether every core can be represented.
    bool are_known() const noexcept { return !beyond_ && !ranges_.empty(); }
    std::uint64_t count() const noexcept { return count_; }
    const ttmem_core_range* data() const noexcept { return ranges_.data(); }
    std::size_t size() const noexcept { return ranges_.size(); }

private:
    std::vector<ttmem_core_range> ranges_;
    std::uint64_t count_ = 0;
    bool beyond_ = false;
};

template <class T>
struct is_variant : std::false_type {};
template <class... T>
struct is_variant<std::variant<T...>> : std::true_type {};

template <class T>
constexpr bool names_cores();

template <class T>
struct variant_names_cores : std::false_type {};
template <class... T>
struct variant_names_cores<std::variant<T...>> : std::bool_constant<(names_cores<T>() && ...)> {};

/// Whether a type is a core, a rectangle of them, or several of these.
template <class T>
constexpr bool names_cores() {
    using Bare = std::remove_cv_t<T>;
    if constexpr (is_variant<Bare>::value) {
        return variant_names_cores<Bare>::value;
    } else if constexpr (!std::is_class_v<Bare>) {
        return false;
    } else if constexpr (offers<x_and_y, Bare> || offers<start_and_end_coord, Bare> || offers<start_and_end, Bare>) {
        return true;
    } else if constexpr (offers<ranges_call, Bare>) {
        return names_cores<std::remove_reference_t<decltype(*std::declval<Bare&>().ranges().begin())>>();
    } else if constexpr (offers<begin_call, Bare>) {
        using Element = std::remove_reference_t<decltype(*std::declval<Bare&>().begin())>;
        if constexpr (std::is_same_v<std::remove_cv_t<Element>, Bare>) {
            return false;
        } else {
            return names_cores<Element>();
        }
    } else {
        return false;
    }
}

template <class T>
inline constexpr bool is_cores = names_cores<std::remove_reference_t<T>>();

/// Collects the cores of an argument.
template <class Cores>
void read_cores(const Cores& cores, CoreList& list) {
    if constexpr (is_variant<Cores>::value) {
        std::visit([&](const auto& it) { detail::read_cores(it, list); }, cores);
    } else if constexpr (offers<x_and_y, const Cores>) {
        list.add(natural(cores.x), natural(cores.y), natural(cores.x), natural(cores.y));
    } else if constexpr (offers<start_and_end_coord, const Cores>) {
        const auto &from = cores.start_coord, &to = cores.end_coord;
        list.add(natural(from.x), natural(from.y), natural(to.x), natural(to.y));
    } else if constexpr (offers<start_and_end, const Cores>) {
        const auto &from = cores.start, &to = cores.end;
        list.add(natural(from.x), natural(from.y), natural(to.x), natural(to.y));
    } else if constexpr (offers<ranges_call, const Cores>) {
        for (const auto& range : cores.ranges()) {
            detail::read_cores(range, list);
        }
    } else {
        for (const auto& one : cores) {
            detail::read_cores(one, list);
        }
    }
}

}  // namespace ttmem::instrumented::detail

#endif  // TTMEM_INSTRUMENTED_SHAPES_HPP
