// Types with the members of TT-Metal's in 2026, as far as the tests need them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tt {
enum class DataFormat : std::uint8_t { Float16_b = 5 };
}

namespace tt::tt_metal {

struct CoreCoord {
    std::size_t x = 0;
    std::size_t y = 0;
};

class CoreRange {
public:
    CoreCoord start_coord;
    CoreCoord end_coord;
    CoreRange(const CoreCoord& point) : start_coord(point), end_coord(point) {}
    CoreRange(const CoreCoord& from, const CoreCoord& to) : start_coord(from), end_coord(to) {}
    // Iterates over cores.
    const CoreCoord* begin() const { return &start_coord; }
    const CoreCoord* end() const { return &start_coord + 1; }
    std::size_t size() const { return (end_coord.x - start_coord.x + 1) * (end_coord.y - start_coord.y + 1); }
};

class CoreRangeSet {
public:
    CoreRangeSet() = default;
    CoreRangeSet(std::vector<CoreRange> ranges) : ranges_(std::move(ranges)) {}
    const std::vector<CoreRange>& ranges() const { return ranges_; }
    std::size_t size() const { return ranges_.size(); }

private:
    std::vector<CoreRange> ranges_;
};

using CoreSpec = std::variant<CoreCoord, CoreRange, CoreRangeSet>;

struct Buffer {
    std::uint32_t address;
};

class CircularBufferConfig {
public:
    explicit CircularBufferConfig(std::uint32_t total_size) : total_size_(total_size) {}
    CircularBufferConfig(std::uint32_t total_size, const std::map<std::uint8_t, DataFormat>&) : total_size_(total_size) {}
    CircularBufferConfig& set_page_size(std::uint8_t, std::uint32_t) { return *this; }
    CircularBufferConfig& set_globally_allocated_address(const Buffer& buffer) {
        address_ = buffer.address;
        return *this;
    }
    std::uint32_t total_size() const { return total_size_ == 13 ? throw std::runtime_error("no size") : total_size_; }
    std::optional<std::uint32_t> globally_allocated_address() const { return address_; }
    std::uint32_t address_offset() const { return offset_; }
    void set_address_offset(std::uint32_t offset) { offset_ = offset; }

private:
    std::uint32_t total_size_;
    std::uint32_t offset_ = 0;
    std::optional<std::uint32_t> address_;
};

class Program {
public:
    Program() = default;
    Program(Program&&) = default;
    Program& operator=(Program&&) = default;
    void set_runtime_id(std::uint64_t id) { runtime_id_ = id; }
    std::uint64_t get_runtime_id() const { return runtime_id_; }
    std::vector<int> circular_buffers() const { return {}; }

private:
    std::uint64_t runtime_id_ = 0;
    std::unique_ptr<int> internal_ = std::make_unique<int>(0);
};

namespace distributed {
class MeshDevice;
}

class IDevice {
public:
    virtual ~IDevice() = default;
    virtual int id() const = 0;
    virtual std::shared_ptr<distributed::MeshDevice> get_mesh_device() = 0;
};

class Device : public IDevice {
public:
    explicit Device(int id) : id_(id) {}
    int id() const override { return id_ == 13 ? throw std::runtime_error("no id") : ++asked, id_; }
    std::shared_ptr<distributed::MeshDevice> get_mesh_device() override { return nullptr; }
    mutable int asked = 0;

private:
    int id_;
};

namespace distributed {

class MeshDevice : public IDevice, public std::enable_shared_from_this<MeshDevice> {
public:
    explicit MeshDevice(std::vector<int> ids) : ids_(std::move(ids)) {}
    // No device's number: meshes have their own.
    int id() const override { return 77; }
    std::shared_ptr<MeshDevice> get_mesh_device() override { return shared_from_this(); }
    std::vector<int> get_device_ids() const { return ids_; }

private:
    std::vector<int> ids_;
};

}  // namespace distributed

using CBHandle = std::uintptr_t;
using KernelHandle = std::uint32_t;

struct DataMovementConfig {
    std::vector<std::uint32_t> compile_args;
};
struct ComputeConfig {
    bool math_approx_mode = false;
};

inline CBHandle CreateCircularBuffer(Program&, const CoreSpec&, const CircularBufferConfig&) {
    static std::atomic<CBHandle> last = 1000;
    return ++last;
}

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
    int code = 42;
};

inline KernelHandle CreateKernel(
    Program&, const std::string& file, const CoreSpec&, const std::variant<DataMovementConfig, ComputeConfig>&) {
    if (file.empty()) {
        throw Refused("no file");
    }
    static std::atomic<KernelHandle> last = 0;
    return last++;
}

namespace experimental {

class GlobalCircularBuffer {
public:
    std::uint64_t buffer_address() const { return 0x9000; }
    std::uint64_t config_address() const { return 0xa000; }
};

inline CBHandle CreateCircularBuffer(
    Program& program, const CoreSpec& cores, const CircularBufferConfig& config, const GlobalCircularBuffer&) {
    return tt_metal::CreateCircularBuffer(program, cores, config);
}

}  // namespace experimental

}  // namespace tt::tt_metal
