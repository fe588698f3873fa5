// The stand-in's programs: with the real layout where the agent reads it, and with a simple placement.
#pragma once

#include <functional>

#include "runtime.hpp"

namespace tt {
enum class CoreType : int { WORKER, ETH };

namespace tt_metal {

// A part of a program. `address` is of a view or of the borrowed buffer; other parts are placed when the program is compiled.
struct PartPlan {
    enum Kind { CB, VIEW, DFB, BORROWING, PAD, KERNEL } kind;
    uint32_t bytes = 0;
    uint32_t address = 0;
    std::string name;
    bool computes = false;
    CoreRangeSet cores;
};
struct ProgramPlan {
    std::vector<PartPlan> parts;
    uint32_t config = 0;
};

class CircularBufferImpl {
public:
    uintptr_t id = 0;
    CoreRangeSet cores;
    uint32_t bytes = 0;
    bool global = false;
    std::optional<uint32_t> at;

    uint32_t address() const;
};

class CircularBuffer {
    CircularBufferImpl *impl;

public:
    const CoreRangeSet &core_ranges() const;
    uint32_t size() const;
    bool globally_allocated() const;
};

// With the layout of 0.81 or 0.76.
struct DataflowBufferImpl {
#ifdef OLD
    uint64_t id = 0;
#else
    uint64_t id[2] = {};
#endif
    CoreRangeSet cores;
    uint32_t entry = 16, entries = 0;
#ifdef OLD
    char unused[70] = {};
#else
    char unused[66] = {};
#endif
    bool borrows = false;
    uint64_t more[4] = {};
    // A group of cores and the address of each core.
    std::unordered_map<xy_pair, std::pair<size_t, uint32_t>, HashXy> addresses;
    uint64_t rest[3] = {};
    // Set at dispatch.
    uint32_t borrowed = 0;
    uint32_t lender = 0;

    uint32_t bytes() const { return entry * entries; }
};

struct Scratchpad {
    std::string name;
    uint32_t bytes;
    uint32_t unused = 0xeeeeeeee;
    uint32_t address;
#ifdef OLD
    char rest[4] = {};
#else
    char rest[52] = {};
#endif
};

class Kernel {
    std::string own_name;
    CoreRangeSet own_cores;
    char unused[0x220 - 8 - sizeof(std::string) - sizeof(CoreRangeSet)] = {};

public:
    std::vector<Scratchpad> pads;

    Kernel(std::string name, CoreRangeSet cores) : own_name(std::move(name)), own_cores(std::move(cores)) {}
    virtual ~Kernel();
    std::string name() const;
    std::vector<CoreRange> logical_coreranges() const;
    const CoreRangeSet &cores() const { return own_cores; }
};

class ComputeKernel : public Kernel {
public:
    using Kernel::Kernel;
    ~ComputeKernel() override;
};

struct KernelGroup {
    uint32_t type = 0;
    CoreRangeSet cores;
};

struct Semaphore {};

namespace detail {
class ProgramImpl {
    uint64_t id;
    bool placed = false;
    std::vector<std::shared_ptr<CircularBufferImpl>> cbs;
    std::vector<std::shared_ptr<DataflowBufferImpl>> dfbs;
    std::vector<PartPlan> pads;
    uint32_t config;
    std::unordered_map<uint32_t, std::shared_ptr<Kernel>> kernels;
    std::vector<std::shared_ptr<KernelGroup>> groups;
    uint32_t lowest_free = 0;

public:
    bool finalized = false;

    struct DfbSizeOverride {
        uint32_t bytes;
    };
    class CircularBufferAllocator {
    public:
        CoreRange range;
        std::vector<std::pair<uint64_t, uint64_t>> regions;

        void mark_address(uint64_t address, uint64_t bytes, uint64_t base);
        bool has_core_of(const CoreRangeSet &cores) const;
    };

    explicit ProgramImpl(const ProgramPlan &plan);
    ~ProgramImpl();
    // Reuse addresses of destroyed programs, if requested.
    static void *operator new(size_t bytes);
    static void operator delete(void *memory);

    static uint32_t finalize_program_offsets(ContextId context, IDevice *device,
        const std::function<std::unordered_map<uint32_t, std::shared_ptr<Kernel>> &(uint32_t)> &kernels,
        const std::function<std::vector<std::shared_ptr<KernelGroup>> &(uint32_t)> &groups,
        const std::function<const std::vector<Semaphore> &()> &semaphores, std::span<ProgramImpl *> programs);
    uint64_t get_id() const;
    std::span<const std::shared_ptr<CircularBufferImpl>> circular_buffers() const;
    const std::vector<std::shared_ptr<DataflowBufferImpl>> &dataflow_buffers() const;
    void allocate_dataflow_buffers(const IDevice *device);
    void allocate_scratchpads(const IDevice *device);
    void validate_circular_buffer_region(const IDevice *device);
    void validate_dataflow_buffer_region(const IDevice *device);
    void invalidate_circular_buffer_allocation();
    void apply_dfb_size_overrides(const std::vector<DfbSizeOverride> &sizes);
    uint32_t &get_program_config_size(uint32_t type);
    std::vector<std::shared_ptr<KernelGroup>> &get_kernel_groups(uint32_t type);
    std::unordered_map<uint32_t, std::shared_ptr<Kernel>> &get_kernels(uint32_t type);

    // Stands for `compile_and_allocate`.
    void place(const IDevice *device);
    void borrow();
    void move_views(uint32_t address);
    void resize_cbs(uint32_t bytes);
};
}  // namespace detail

class Program {
public:
    std::shared_ptr<detail::ProgramImpl> internal;
};

namespace detail {
class ProgramCompileGroup {
    std::vector<std::unique_ptr<Program>> all;

public:
    void add_program(IDevice *device, std::unique_ptr<Program> program);
    std::unique_ptr<Program> take();
};
}  // namespace detail

namespace hal {
uint32_t get_max_worker_l1_unreserved_size();
}

namespace distributed {
// Chips of a mesh, from one to another.
struct MeshCoordinateRange {
    size_t first = 0, last = 0;
    uint64_t rest[28] = {};
#ifdef MOVED
    // At the offset where the agent expects a program.
    uint64_t more[8] = {0x30, 0x31, 0x32};
#endif
    bool operator==(const MeshCoordinateRange &) const = default;
};

struct HashRange {
    size_t operator()(const MeshCoordinateRange &it) const { return it.first * 31 + it.last; }
};

using ProgramMap = std::unordered_map<MeshCoordinateRange, Program, HashRange>;

class MeshWorkloadImpl {
public:
    ProgramMap programs;

    void compile(MeshDevice *mesh);
    void finalize_offsets(MeshDevice *mesh);
};

class MeshWorkload {
    std::unique_ptr<MeshWorkloadImpl> pimpl = std::make_unique<MeshWorkloadImpl>();

public:
    ProgramMap &get_programs();
    MeshWorkloadImpl &impl() { return *pimpl; }
};

class MeshCommandQueue {
    MeshDevice *mesh;
    uint32_t id;

public:
    MeshCommandQueue(MeshDevice *mesh, uint32_t id) : mesh(mesh), id(id) {}
    virtual ~MeshCommandQueue();
    MeshDevice *device() const { return mesh; }
};

void EnqueueMeshWorkload(MeshCommandQueue &queue, MeshWorkload &workload, bool blocking);
}  // namespace distributed
}  // namespace tt_metal

namespace tt_fabric {
class FabricContext {};
std::unique_ptr<tt_metal::Program> create_and_compile_tt_fabric_program(FabricContext &, CoreType, tt_metal::IDevice *);
std::unique_ptr<tt_metal::Program> create_and_compile_tt_fabric_program(tt_metal::IDevice *);
}  // namespace tt_fabric
}  // namespace tt

// The test program's interface to programs.
class Programs {
public:
    using Mesh = tt::tt_metal::IDevice;
    using Program = tt::tt_metal::Program;
    using Workload = tt::tt_metal::distributed::MeshWorkload;
    enum Maker { WORKLOAD, FABRIC, FABRIC_BEFORE, DISPATCH };
    enum Step { BEGIN, END, REPLAY, RELEASE };

    virtual Program *make(const tt::tt_metal::ProgramPlan &plan, Maker maker, Mesh *device) = 0;
    virtual void drop(Program *program) = 0;
    // Finalises one program for one chip, before its parts are placed.
    virtual void finalize(Mesh *device, Program *program) = 0;
    virtual void move_views(Program *program, uint32_t address) = 0;
    virtual void resize_cbs(Program *program, uint32_t bytes) = 0;
    virtual void resize_dfbs(Program *program, std::optional<uint32_t> bytes) = 0;
    virtual Workload *make_workload() = 0;
    // Null: adds an empty program.
    virtual void add(Workload *workload, size_t first, size_t last, Program *program) = 0;
    virtual void drop(Workload *workload) = 0;
    virtual void compile(Mesh *mesh, Workload *workload) = 0;
    virtual void enqueue(Mesh *mesh, uint32_t queue, Workload *workload) = 0;
    virtual void trace(Step step, Mesh *mesh, uint8_t queue, uint32_t id) = 0;
    // Builds programs one after another, with `alive` of them at a time.
    virtual void many(Mesh *mesh, size_t count, size_t alive, bool dispatched) = 0;
    virtual ~Programs() = default;
};

Programs *programs_instance();
