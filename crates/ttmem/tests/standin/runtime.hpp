// A stand-in for tt-metal's library: the same symbols, with a small allocator that has exact figures and fails in ways that
// the real one cannot be made to. No code is tt-metal's; names, arguments and layouts must match.
//
// -DOLD leaves out what runtimes before 0.80 do not export, -DMOVED also has other offsets than those, and -DBROKEN leaves
// out a function that the agent requires.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ttsl {
template <typename T, typename Tag>
struct StrongType {
    T value;
};
}  // namespace ttsl

namespace tt {

// Stands for the runtime's own exceptions.
struct Fatal {
    int value;
    std::string why;
};

struct xy_pair {
    size_t x, y;
    bool operator==(const xy_pair &) const = default;
};

struct HashXy {
    // Not `noexcept`, like the real one: the map then stores hashes in its nodes.
    size_t operator()(const xy_pair &it) const { return it.y * 31 + it.x; }
};

namespace umd {
struct HarvestingMasks {
    size_t tensix, dram, eth, pcie, l2cpu;
};

class ClusterDescriptor {
    std::unordered_map<int, uint64_t> ids;
    std::unordered_map<int, int> local;
    std::unordered_map<int, std::string> pci;

public:
    ClusterDescriptor();
    const std::unordered_map<int, uint64_t> &get_chip_unique_ids() const;
    int get_arch(int chip) const;
    uint64_t get_board_id_for_chip(int chip) const;
    HarvestingMasks get_harvesting_masks(int chip) const;
    const std::unordered_map<int, int> &get_chips_with_mmio() const;
    const std::unordered_map<int, std::string> &get_chip_pci_bdfs() const;
};
}  // namespace umd

class Cluster {
public:
    umd::ClusterDescriptor *get_cluster_desc() const;
};

namespace tt_metal {

enum class BufferType : int { DRAM, L1, SYSTEM_MEMORY, L1_SMALL, TRACE };
enum class BufferLayout : int { INTERLEAVED = 0, HEIGHT_SHARDED = 2 };
enum class HalMemType : uint8_t { L1, DRAM };
struct ContextIdTag;
using ContextId = ttsl::StrongType<int, ContextIdTag>;
class AllocatorImpl;
class SubDevice {};

class MetalContext {
public:
    static bool instance_exists(ContextId);
    static MetalContext &instance(ContextId);
    Cluster &get_cluster();
};

class IDevice {
public:
    virtual ~IDevice() = default;
    virtual int arch() const = 0;
    virtual int id() const = 0;
};

class Device : public IDevice {
    int chip;

public:
    std::unique_ptr<AllocatorImpl> allocator;

    explicit Device(int chip);
    ~Device() override;
    int arch() const override;
    int id() const override { return chip; }
    xy_pair compute_with_storage_grid_size() const;
    std::unique_ptr<AllocatorImpl> initialize_allocator(size_t l1_small, size_t trace, size_t l1_base,
        std::span<const uint32_t> remap);
};

class SubDeviceManager {
    std::unique_ptr<AllocatorImpl> own;

public:
    SubDeviceManager(IDevice *device, std::unique_ptr<AllocatorImpl> &&allocator, std::span<const SubDevice> subs);
    ~SubDeviceManager();
    AllocatorImpl *allocator() const { return own.get(); }
};

namespace distributed {
struct MeshTraceIdTag;
using MeshTraceId = ttsl::StrongType<uint32_t, MeshTraceIdTag>;
struct MeshCoordinateRange;
class MeshDevice;

class MeshDeviceView {
public:
    std::vector<IDevice *> all;

    std::vector<IDevice *> get_devices(const MeshCoordinateRange &range) const;
};

class MeshDeviceImpl {
    int number;
    std::vector<int> chips;

public:
    explicit MeshDeviceImpl(std::vector<int> chips);
    int id() const;
    std::vector<int> get_device_ids() const;
    bool close_impl(MeshDevice *mesh);
    void begin_mesh_trace(uint8_t queue, const MeshTraceId &trace);
    void end_mesh_trace(uint8_t queue, const MeshTraceId &trace);
    void replay_mesh_trace(uint8_t queue, const MeshTraceId &trace, bool blocking);
};

class MeshDevice : public IDevice {
    std::unique_ptr<MeshDeviceImpl> pimpl;
    MeshDeviceView view;
    std::vector<std::unique_ptr<Device>> devices;

public:
    std::unique_ptr<SubDeviceManager> manager;
    // A second manager, loaded by `manage`.
    std::unique_ptr<SubDeviceManager> another;

    explicit MeshDevice(std::vector<int> chips);
    ~MeshDevice() override;
    int arch() const override;
    int id() const override;
    std::vector<int> get_device_ids() const;
    const MeshDeviceView &get_view() const;
    xy_pair compute_with_storage_grid_size() const;
    void release_mesh_trace(const MeshTraceId &trace);
    void close();
    MeshDeviceImpl &impl() { return *pimpl; }
};
}  // namespace distributed

struct CoreRange {
    xy_pair from, to;
};

struct CoreRangeSet {
    std::vector<CoreRange> ranges;
};

struct ShardSpecBuffer {
    CoreRangeSet grid;
    uint32_t shape[2];
    int32_t orientation;
    uint32_t page_shape[2];
    uint32_t tensor_in_pages[2];
};

// Parameters of a buffer.
struct Plan {
    BufferType type = BufferType::DRAM;
    uint64_t page = 0;
    uint32_t pages = 0;
    std::optional<uint32_t> cores;
    std::optional<ShardSpecBuffer> shards;
    bool per_core = false;
    // It is allocated as a buffer of a mesh; with a shape, for a tensor, or for a semaphore.
    bool of_mesh = false, semaphore = false;
    std::optional<std::vector<uint32_t>> tensor;
};

// With the layout of runtimes up to 0.79, where some fields have no function.
class Buffer {
    void *self[2] = {};

public:
#ifdef MOVED
    void *no_device = this + 1;
    uint64_t no_size = 64;
    int32_t no_type[2] = {1, 0};
#endif
    IDevice *device_;
    uint64_t size_;
    BufferType type_;
    BufferLayout layout_;
    char unused[24];
    AllocatorImpl *allocator_;
    uint8_t status = 0;
    uint64_t address_ = 0;
    uint64_t page_;
    std::optional<ShardSpecBuffer> shards;
    std::optional<uint32_t> cores;
    bool per_core = false;
    std::unordered_map<xy_pair, uint64_t, HashXy> core_addresses;

    Buffer(IDevice *device, AllocatorImpl *allocator, const Plan &plan);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    void allocate();
    void deallocate();
    uint64_t per_bank(uint64_t alignment) const;

    uint32_t address() const;
    uint64_t page_size() const;
    uint32_t num_pages() const;
    uint64_t aligned_page_size() const;
    uint64_t aligned_size() const;
#ifndef BROKEN
    uint64_t aligned_size_per_bank() const;
#endif
    std::optional<uint32_t> num_cores() const;
    ShardSpecBuffer shard_spec() const;
    bool is_dram() const;
#ifndef OLD
    BufferType buffer_type() const;
    BufferLayout buffer_layout() const;
    uint64_t size() const;
    bool has_shard_spec() const;
    IDevice *device() const;
#endif
};

#ifndef OLD
namespace experimental::per_core_allocation {
bool is_per_core_allocation(const Buffer &buffer);
const std::unordered_map<xy_pair, uint64_t, HashXy> &get_per_core_addresses(const Buffer &buffer);
}  // namespace experimental::per_core_allocation
#endif

// Allocates a buffer of a mesh; see tensors.cpp.
void allocate_for(const Plan &plan, Buffer *buffer);

struct Statistics {
    size_t allocatable, allocated, free, largest_free;
};

// Regions of another allocator, by offset into a bank of DRAM or L1.
struct AllocatorState {
    std::map<BufferType, std::vector<std::pair<uint64_t, uint64_t>>> regions;
};

// One free list for all banks of a space: blocks by offset.
struct Space {
    uint32_t banks = 0;
    uint64_t base = 0, begin = 0, end = 0;
    std::map<uint64_t, uint64_t> blocks;

    std::optional<uint64_t> take(uint64_t bytes, bool from_below);
    Statistics statistics() const;
};

class AllocatorImpl {
    mutable std::mutex mutex;
    std::map<BufferType, Space> spaces;
    uint64_t per_core_taken = 0;

public:
    explicit AllocatorImpl(uint64_t l1_small);
    virtual ~AllocatorImpl();

    uint64_t allocate_buffer(Buffer *buffer);
    void deallocate_buffer(Buffer *buffer);
    void deallocate_buffers();
    void clear();
#ifndef OLD
    void mirror_lockstep_allocation(uint64_t address, uint64_t bytes);
    void unmirror_lockstep_allocation(uint64_t address);
#endif
    void override_state(const AllocatorState &state);
    void shrink_allocator_size(const BufferType &type, uint64_t bytes, bool from_below);
    void reset_allocator_size(const BufferType &type);

    Statistics get_statistics(const BufferType &type) const;
    uint32_t get_num_banks(const BufferType &type) const;
    uint64_t get_bank_size(const BufferType &type) const;
    uint64_t get_base_allocator_addr(const HalMemType &memory) const;
    uint32_t get_alignment(BufferType type) const;
    uint64_t get_worker_l1_size() const;
    std::vector<std::unordered_map<std::string, std::string>> get_memory_block_table(const BufferType &type) const;

    // Exact statistics, with a name that the agent does not know.
    Statistics truth(BufferType type) const;
    uint32_t banks(BufferType type) const { return spaces.at(type).banks; }
};

class L1BankingAllocator : public AllocatorImpl {
public:
    using AllocatorImpl::AllocatorImpl;
    ~L1BankingAllocator() override;
};

}  // namespace tt_metal
}  // namespace tt

// Requested misbehaviour.
struct Misbehaviour {
    // The function that throws when it is called from outside.
    std::atomic<const char *> throwing{""};
    // The function that refuses, and what it says.
    std::atomic<const char *> refusing{""};
    std::atomic<const char *> refusal{""};
    // Statistics are implausible.
    std::atomic<bool> nonsense{false};
    // Shard specs are invalid.
    std::atomic<bool> torn{false};
    // Sizes are impossible.
    std::atomic<bool> huge{false};
    // Threads park while this is set; how many do.
    std::atomic<bool> parked{false};
    std::atomic<int> parking{0};
    // Calls of `get_statistics`: started, and finished.
    std::atomic<uint64_t> queries{0}, answered_queries{0};
    // What is garbage; see programs.cpp.
    std::atomic<const char *> garbage{""};
    // New programs reuse addresses of destroyed ones.
    std::atomic<bool> reuse{false};
    // Programs are finalised before they are placed, chip by chip.
    std::atomic<bool> slow{false};
    // Queries of addresses before there are any.
    std::atomic<uint64_t> unplaced{0};
};

namespace internal_state {
constexpr uint64_t L1_BASE = 105824;

extern Misbehaviour misbehaviour;
void throw_if_requested(const char *function);
bool is_garbage(const char *what);
}  // namespace internal_state

class Programs;

// A failure of this thread's next call.
struct Failure {
    enum Kind { NONE, FATAL, BAD_ALLOC, INT, THREAD_EXIT, PROCESS_EXIT, PARK } kind = NONE;
    enum When { ALLOCATE, BEFORE_FREE, AFTER_FREE } when = ALLOCATE;
    int value = 0;
};

// The program's interface to the library, which may be loaded with local symbols.
class Runtime {
public:
    virtual tt::tt_metal::IDevice *open_mesh(int first, int chips, uint64_t l1_small) = 0;
    virtual tt::tt_metal::IDevice *open_device(int chip) = 0;
    virtual void close(tt::tt_metal::IDevice *device) = 0;
    virtual tt::tt_metal::AllocatorImpl *allocator(tt::tt_metal::IDevice *device) = 0;
    virtual tt::tt_metal::Buffer *create(tt::tt_metal::IDevice *device, const tt::tt_metal::Plan &plan) = 0;
    // If deallocating throws, the buffer still exists.
    virtual void destroy(tt::tt_metal::Buffer *buffer, bool deallocate) = 0;
    virtual void bulk(tt::tt_metal::AllocatorImpl *allocator, bool clear) = 0;
    // No bytes: removes the mirror.
    virtual void mirror(tt::tt_metal::AllocatorImpl *allocator, uint64_t address, uint64_t bytes) = 0;
    virtual void override_state(tt::tt_metal::AllocatorImpl *allocator, const tt::tt_metal::AllocatorState &state) = 0;
    // No bytes: resets the size.
    virtual void shrink(tt::tt_metal::AllocatorImpl *allocator, tt::tt_metal::BufferType type, uint64_t bytes) = 0;
    virtual tt::tt_metal::Statistics truth(tt::tt_metal::AllocatorImpl *allocator, tt::tt_metal::BufferType type) = 0;
    virtual uint32_t banks(tt::tt_metal::AllocatorImpl *allocator, tt::tt_metal::BufferType type) = 0;
    // Loads or removes a second manager, with an allocator of its own, of a mesh.
    virtual void manage(tt::tt_metal::IDevice *mesh, bool begin) = 0;
    virtual Programs *programs() = 0;
    virtual Misbehaviour &misbehaviour() = 0;
    virtual Failure &next() = 0;
};

extern "C" Runtime *standin();
