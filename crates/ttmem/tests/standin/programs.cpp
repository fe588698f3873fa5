// The stand-in's programs; see programs.hpp.

#include "programs.hpp"

#include <cstring>
#include <deque>
#include <thread>

using internal_state::is_garbage;
using internal_state::misbehaviour;
using internal_state::throw_if_requested;

namespace tt {
namespace tt_metal {
namespace {
constexpr uint32_t UNIT = 16;

uint32_t round_up(uint32_t bytes) { return (bytes + UNIT - 1) / UNIT * UNIT; }

// Invalid vectors.
void *const absurd[3] = {reinterpret_cast<void *>(16), reinterpret_cast<void *>(8), reinterpret_cast<void *>(24)};
void *const vast[3] = {reinterpret_cast<void *>(0), reinterpret_cast<void *>(~31ul), reinterpret_cast<void *>(~31ul)};

template <typename T>
T &garbage() {
    return *reinterpret_cast<T *>(const_cast<void **>(is_garbage("vast") ? vast : absurd));
}
}  // namespace

uint32_t CircularBufferImpl::address() const {
    throw_if_requested("cb_address");
    if (!at) {
        misbehaviour.unplaced++;
        throw Fatal{6, "not placed"};
    }
    return *at;
}
const CoreRangeSet &CircularBuffer::core_ranges() const {
    throw_if_requested(__func__);
    return is_garbage("ranges") || is_garbage("vast") ? garbage<const CoreRangeSet>() : impl->cores;
}
uint32_t CircularBuffer::size() const { return throw_if_requested("cb_size"), impl->bytes; }
bool CircularBuffer::globally_allocated() const { return throw_if_requested(__func__), impl->global; }

Kernel::~Kernel() = default;
ComputeKernel::~ComputeKernel() = default;
std::string Kernel::name() const { return throw_if_requested(__func__), own_name; }
std::vector<CoreRange> Kernel::logical_coreranges() const { return throw_if_requested(__func__), own_cores.ranges; }

namespace detail {
ProgramImpl::ProgramImpl(const ProgramPlan &plan) : config(plan.config) {
    static_assert(sizeof(Scratchpad) == sizeof(std::string) + 12 + sizeof Scratchpad::rest);
#ifdef OLD
    static_assert(offsetof(DataflowBufferImpl, cores) == 8 && offsetof(DataflowBufferImpl, entry) == 32);
    static_assert(offsetof(DataflowBufferImpl, borrows) == 110 && offsetof(DataflowBufferImpl, borrowed) == 224);
    static_assert(offsetof(DataflowBufferImpl, addresses) == 144);
#else
    static_assert(offsetof(DataflowBufferImpl, cores) == 16 && offsetof(DataflowBufferImpl, entry) == 40);
    static_assert(offsetof(DataflowBufferImpl, borrows) == 114 && offsetof(DataflowBufferImpl, borrowed) == 232);
    static_assert(offsetof(DataflowBufferImpl, addresses) == 152);
#endif
    static_assert(offsetof(Kernel, pads) == 0x220 && offsetof(KernelGroup, cores) == 8);
    static std::atomic<uint64_t> numbers = 0;
    id = numbers++;
    for (const PartPlan &it : plan.parts) {
        if (it.kind == PartPlan::CB || it.kind == PartPlan::VIEW) {
            auto cb = std::make_shared<CircularBufferImpl>();
            cb->cores = it.cores;
            cb->bytes = it.bytes;
            cb->global = it.kind == PartPlan::VIEW;
            if (cb->global) cb->at = it.address;
            cbs.push_back(cb);
        } else if (it.kind == PartPlan::DFB || it.kind == PartPlan::BORROWING) {
            auto dfb = std::make_shared<DataflowBufferImpl>();
            dfb->cores = it.cores;
            dfb->entries = it.bytes / dfb->entry;
            dfb->borrows = it.kind == PartPlan::BORROWING;
            dfb->lender = it.address;
            dfbs.push_back(dfb);
        } else if (it.kind == PartPlan::PAD) {
            pads.push_back(it);
        } else {
            auto handle = static_cast<uint32_t>(kernels.size());
            kernels[handle] = it.computes ? std::make_shared<ComputeKernel>(it.name, it.cores)
                                          : std::make_shared<Kernel>(it.name, it.cores);
            auto group = std::make_shared<KernelGroup>();
            group->cores = it.cores;
            groups.push_back(group);
        }
    }
}
ProgramImpl::~ProgramImpl() = default;

namespace {
std::mutex pool_mutex;
auto &pool = *new std::vector<void *>;
}  // namespace

void *ProgramImpl::operator new(size_t bytes) {
    if (!misbehaviour.reuse) return ::operator new(bytes);
    std::lock_guard lock(pool_mutex);
    if (pool.empty()) return ::operator new(bytes);
    void *memory = pool.back();
    pool.pop_back();
    return memory;
}
void ProgramImpl::operator delete(void *memory) {
    if (!misbehaviour.reuse) return ::operator delete(memory);
    std::lock_guard lock(pool_mutex);
    pool.push_back(memory);
}

uint32_t ProgramImpl::finalize_program_offsets(ContextId context, IDevice *device,
    const std::function<std::unordered_map<uint32_t, std::shared_ptr<Kernel>> &(uint32_t)> &,
    const std::function<std::vector<std::shared_ptr<KernelGroup>> &(uint32_t)> &,
    const std::function<const std::vector<Semaphore> &()> &, std::span<ProgramImpl *> programs) {
    if (context.value != 0 || device == nullptr) throw Fatal{7, "the arguments did not arrive"};
    throw_if_requested(__func__);
    for (ProgramImpl *program : programs) {
        if (program) program->finalized = true;
    }
    return 4242;
}

uint64_t ProgramImpl::get_id() const { return throw_if_requested(__func__), id; }
std::span<const std::shared_ptr<CircularBufferImpl>> ProgramImpl::circular_buffers() const {
    throw_if_requested(__func__);
    if (is_garbage("cbs")) return {cbs.data(), ~size_t{0} >> 5};
    return cbs;
}

const std::vector<std::shared_ptr<DataflowBufferImpl>> &ProgramImpl::dataflow_buffers() const {
    throw_if_requested(__func__);
    using All = const std::vector<std::shared_ptr<DataflowBufferImpl>>;
    return is_garbage("dfbs") || is_garbage("vast") ? garbage<All>() : dfbs;
}

void ProgramImpl::CircularBufferAllocator::mark_address(uint64_t address, uint64_t bytes, uint64_t base) {
    if (address < base) throw Fatal{8, "the arguments did not arrive"};
    regions.push_back({address, address + bytes});
}

bool ProgramImpl::CircularBufferAllocator::has_core_of(const CoreRangeSet &cores) const {
    for (const CoreRange &it : cores.ranges) {
        if (it.from.x <= range.to.x && range.from.x <= it.to.x && it.from.y <= range.to.y && range.from.y <= it.to.y) return true;
    }
    return false;
}

void ProgramImpl::allocate_dataflow_buffers(const IDevice *device) {
    if (placed) return;
    if (device == nullptr) throw Fatal{9, "the arguments did not arrive"};
    uint64_t base = lowest_free;
    // Each range has an allocator, in which everything is marked that is on one of its cores.
    std::vector<CircularBufferAllocator> allocators;
    for (const auto &dfb : dfbs) {
        for (const CoreRange &range : dfb->cores.ranges) {
            auto same = [&](const auto &it) { return it.range.from == range.from && it.range.to == range.to; };
            if (std::none_of(allocators.begin(), allocators.end(), same)) allocators.push_back({range, {}});
        }
    }
    for (const auto &dfb : dfbs) {
        if (dfb->borrows) continue;
        for (auto &allocator : allocators) {
            if (allocator.has_core_of(dfb->cores)) allocator.mark_address(lowest_free, dfb->bytes(), base);
        }
        dfb->addresses.clear();
        for (const CoreRange &range : dfb->cores.ranges) {
            for (size_t x = range.from.x; x <= range.to.x; x++) {
                for (size_t y = range.from.y; y <= range.to.y; y++) dfb->addresses[{x, y}] = {0, lowest_free};
            }
        }
        if (is_garbage("addresses")) dfb->addresses.max_load_factor(0.5);
        lowest_free += round_up(dfb->bytes());
        throw_if_requested(__func__);
    }
}

void ProgramImpl::allocate_scratchpads(const IDevice *) {
    for (PartPlan &pad : pads) {
        // On the cores of all kernels, and in the list of each.
        for (auto &[handle, kernel] : kernels) {
            kernel->pads.push_back({pad.name + " with a name that has memory of its own", pad.bytes, 0, lowest_free, {}});
            if (is_garbage("pads")) kernel->pads.back().address += 3;
        }
        lowest_free += round_up(pad.bytes);
    }
}

void ProgramImpl::invalidate_circular_buffer_allocation() {
    for (auto &cb : cbs) {
        if (!cb->global) cb->at.reset();
    }
    placed = false;
}
void ProgramImpl::apply_dfb_size_overrides(const std::vector<DfbSizeOverride> &sizes) {
    for (const DfbSizeOverride &size : sizes) {
        for (auto &dfb : dfbs) dfb->entries = size.bytes / dfb->entry;
        placed = false;
    }
}
uint32_t &ProgramImpl::get_program_config_size(uint32_t) { return throw_if_requested(__func__), config; }
std::vector<std::shared_ptr<KernelGroup>> &ProgramImpl::get_kernel_groups(uint32_t) {
    throw_if_requested(__func__);
    return is_garbage("groups") || is_garbage("vast") ? garbage<std::vector<std::shared_ptr<KernelGroup>>>() : groups;
}
std::unordered_map<uint32_t, std::shared_ptr<Kernel>> &ProgramImpl::get_kernels(uint32_t) {
    throw_if_requested(__func__);
    if (is_garbage("kernels")) kernels.max_load_factor(0.5);
    if (is_garbage("null")) kernels[1000] = nullptr;
    return kernels;
}

void ProgramImpl::validate_circular_buffer_region(const IDevice *) { throw_if_requested(__func__); }
void ProgramImpl::validate_dataflow_buffer_region(const IDevice *) { throw_if_requested(__func__); }

void ProgramImpl::place(const IDevice *device) {
    // Runtimes before 0.80 place at every dispatch.
#ifndef OLD
    if (placed) return;
#endif
    if (!placed) {
        lowest_free = internal_state::L1_BASE;
        for (auto &cb : cbs) {
            if (cb->global) continue;
            cb->at = lowest_free;
            // Circular buffers are marked by the same function as dataflow buffers.
            for (const CoreRange &range : cb->cores.ranges) {
                CircularBufferAllocator{range, {}}.mark_address(lowest_free, cb->bytes, internal_state::L1_BASE);
            }
            lowest_free += round_up(cb->bytes);
        }
        for (auto &[handle, kernel] : kernels) kernel->pads.clear();
    }
    allocate_dataflow_buffers(device);
    if (!placed) allocate_scratchpads(device);
    placed = true;
}
void ProgramImpl::borrow() {
    for (auto &dfb : dfbs) dfb->borrowed = dfb->lender;
}
void ProgramImpl::move_views(uint32_t address) {
    for (auto &dfb : dfbs) dfb->lender = address;
    for (auto &cb : cbs) {
        if (cb->global) cb->at = address;
    }
}
void ProgramImpl::resize_cbs(uint32_t bytes) {
    for (auto &cb : cbs) {
        if (!cb->global) cb->bytes = bytes;
    }
    invalidate_circular_buffer_allocation();
}

void ProgramCompileGroup::add_program(IDevice *device, std::unique_ptr<Program> program) {
    if (device == nullptr) throw Fatal{10, "the arguments did not arrive"};
    all.push_back(std::move(program));
}
std::unique_ptr<Program> ProgramCompileGroup::take() {
    auto last = std::move(all.back());
    all.pop_back();
    return last;
}

namespace {
void finalize_programs(IDevice *device, std::span<ProgramImpl *> programs) {
    static std::unordered_map<uint32_t, std::shared_ptr<Kernel>> kernels;
    static std::vector<std::shared_ptr<KernelGroup>> groups;
    static std::vector<Semaphore> semaphores;
    uint32_t largest = ProgramImpl::finalize_program_offsets(
        ContextId{0}, device, [](uint32_t) -> auto & { return kernels; }, [](uint32_t) -> auto & { return groups; },
        []() -> const auto & { return semaphores; }, programs);
    if (largest != 4242) throw Fatal{11, "the result did not arrive"};
}
}  // namespace
}  // namespace detail

uint32_t hal::get_max_worker_l1_unreserved_size() { return throw_if_requested(__func__), 1499136 - 36864; }

namespace distributed {
ProgramMap &MeshWorkload::get_programs() { return throw_if_requested(__func__), pimpl->programs; }
MeshCommandQueue::~MeshCommandQueue() = default;

// Several programs are compiled in parallel.
void MeshWorkloadImpl::compile(MeshDevice *mesh) {
    if (programs.size() < 2) {
        for (auto &[range, program] : programs) {
            if (!program.internal) continue;
            program.internal->place(mesh);
            program.internal->validate_circular_buffer_region(mesh);
            program.internal->validate_dataflow_buffer_region(mesh);
        }
    } else {
        std::vector<std::thread> crew;
        for (auto &[range, program] : programs) {
            if (program.internal) crew.emplace_back([mesh, it = program.internal] { it->place(mesh); });
        }
        for (std::thread &thread : crew) thread.join();
    }
    finalize_offsets(mesh);
}
void MeshWorkloadImpl::finalize_offsets(MeshDevice *mesh) {
    std::vector<detail::ProgramImpl *> all;
    bool finalized = true;
    for (auto &[range, program] : programs) {
        all.push_back(program.internal.get());
        finalized &= program.internal == nullptr || program.internal->finalized;
    }
    if (!finalized) detail::finalize_programs(mesh, all);
}

void EnqueueMeshWorkload(MeshCommandQueue &queue, MeshWorkload &workload, bool) {
    MeshWorkloadImpl &impl = workload.impl();
    if (misbehaviour.slow) {
        // Chip by chip: first finalised, then placed.
        for (auto &[range, program] : impl.programs) {
            for (IDevice *device : queue.device()->get_view().get_devices(range)) {
                detail::ProgramImpl *all[] = {program.internal.get()};
                if (!all[0]->finalized) detail::finalize_programs(device, all);
                all[0]->place(device);
            }
        }
    } else {
        impl.compile(queue.device());
    }
    throw_if_requested(__func__);
    for (auto &[range, program] : impl.programs) {
        if (program.internal) program.internal->borrow();
    }
}
}  // namespace distributed
}  // namespace tt_metal

namespace tt_fabric {
namespace {
thread_local tt_metal::ProgramPlan plan;
std::unique_ptr<tt_metal::Program> make_program() {
    auto made = std::make_unique<tt_metal::Program>();
    made->internal.reset(new tt_metal::detail::ProgramImpl(plan));
    return made;
}
}  // namespace
std::unique_ptr<tt_metal::Program> create_and_compile_tt_fabric_program(FabricContext &, CoreType, tt_metal::IDevice *) {
    return throw_if_requested("fabric"), make_program();
}
std::unique_ptr<tt_metal::Program> create_and_compile_tt_fabric_program(tt_metal::IDevice *) {
    return throw_if_requested("fabric"), make_program();
}
}  // namespace tt_fabric
}  // namespace tt

namespace {
using namespace tt::tt_metal;

class ProgramsImpl final : public Programs {
    Program *make(const ProgramPlan &plan, Maker maker, Mesh *device) override {
        tt::tt_fabric::plan = plan;
        if (maker == FABRIC_BEFORE) return tt::tt_fabric::create_and_compile_tt_fabric_program(device).release();
        if (maker == FABRIC) {
            tt::tt_fabric::FabricContext context;
            return tt::tt_fabric::create_and_compile_tt_fabric_program(context, tt::CoreType::ETH, device).release();
        }
        auto made = std::make_unique<Program>();
        made->internal.reset(new detail::ProgramImpl(plan));
        if (maker == DISPATCH) {
            detail::ProgramCompileGroup group;
            group.add_program(device, std::move(made));
            made = group.take();
        }
        return made.release();
    }
    void drop(Program *program) override { delete program; }
    void finalize(Mesh *device, Program *program) override {
        detail::ProgramImpl *all[] = {program ? program->internal.get() : nullptr};
        detail::finalize_programs(device, all);
    }
    void move_views(Program *program, uint32_t address) override { program->internal->move_views(address); }
    void resize_cbs(Program *program, uint32_t bytes) override { program->internal->resize_cbs(bytes); }
    void resize_dfbs(Program *program, std::optional<uint32_t> bytes) override {
        std::vector<detail::ProgramImpl::DfbSizeOverride> sizes;
        if (bytes) sizes.push_back({*bytes});
        program->internal->apply_dfb_size_overrides(sizes);
    }
    Workload *make_workload() override { return new Workload; }
    void add(Workload *workload, size_t first, size_t last, Program *program) override {
        distributed::MeshCoordinateRange range;
        range.first = first;
        range.last = last;
        workload->impl().programs[range] = program ? *program : Program{};
        if (is_garbage("programs")) workload->impl().programs.max_load_factor(0.25);
    }
    void drop(Workload *workload) override { delete workload; }
    void compile(Mesh *mesh, Workload *workload) override {
        workload->impl().compile(static_cast<distributed::MeshDevice *>(mesh));
    }
    void enqueue(Mesh *mesh, uint32_t queue, Workload *workload) override {
        distributed::MeshCommandQueue it(static_cast<distributed::MeshDevice *>(mesh), queue);
        distributed::EnqueueMeshWorkload(it, *workload, false);
    }
    void trace(Step step, Mesh *on, uint8_t queue, uint32_t id) override {
        auto mesh = static_cast<distributed::MeshDevice *>(on);
        distributed::MeshTraceId trace{id};
        if (step == BEGIN) mesh->impl().begin_mesh_trace(queue, trace);
        if (step == END) mesh->impl().end_mesh_trace(queue, trace);
        if (step == REPLAY) mesh->impl().replay_mesh_trace(queue, trace, true);
        if (step == RELEASE) mesh->release_mesh_trace(trace);
    }
    void many(Mesh *mesh, size_t count, size_t alive, bool dispatched) override {
        ProgramPlan plan;
        CoreRangeSet cores{{{{0, 0}, {1, 0}}}};
        plan.config = 64;
        plan.parts = {{PartPlan::KERNEL, 0, 0, "many", true, cores}, {PartPlan::DFB, 32, 0, "", false, cores}};
        std::deque<std::unique_ptr<Workload>> all;
        for (size_t n = 0; n < count; n++) {
            std::unique_ptr<Program> program(make(plan, WORKLOAD, mesh));
            auto &workload = all.emplace_back(make_workload());
            add(workload.get(), 0, 0, program.get());
            dispatched ? enqueue(mesh, 0, workload.get()) : compile(mesh, workload.get());
            if (all.size() > alive) all.pop_front();
        }
        left.insert(left.end(), std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
        if (alive == 0) left.clear();
    }
    std::vector<std::unique_ptr<Workload>> left;
};
}  // namespace

Programs *programs_instance() {
    static ProgramsImpl here;
    return &here;
}
