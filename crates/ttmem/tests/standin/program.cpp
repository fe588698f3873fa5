// A program that runs commands with the stand-in: one command a line on standard input, one answer a line on standard output.
// `program linked` is linked with the library, `program PATH` loads it as Python does, with local symbols.

#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "programs.hpp"
#include "trials.hpp"

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
// Private operators, as some programs have: memory from them can be freed by them only.
constexpr size_t OFFSET = 64;
void *operator new(size_t bytes) {
    auto memory = static_cast<char *>(malloc(bytes + OFFSET));
    return memory ? memory + OFFSET : throw std::bad_alloc();
}
void operator delete(void *memory) noexcept {
    if (memory) free(static_cast<char *>(memory) - OFFSET);
}
void operator delete(void *memory, size_t) noexcept { operator delete(memory); }
#endif

// Leaks are checked only if the process exits normally: in the middle of a call, memory may be anywhere.
bool check_leaks = true;
extern "C" int __lsan_is_turned_off() { return !check_leaks; }

namespace {

Runtime *runtime;
const char *library;
void *handle;
std::map<int, IDevice *> devices;
struct Held {
    int device;
    Buffer *buffer;
};
std::map<int, Held> buffers;
std::map<int, Program *> programs;
std::map<int, distributed::MeshWorkload *> workloads;
int numbers;
void *client_library;

template <class Function>
Function *client_function(const char *name) {
    return reinterpret_cast<Function *>(dlsym(client_library, name));
}

template <class Function>
Function *agent_function(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}

void answer(const char *format, ...) {
    char line[4096] = "ok ";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + 3, sizeof line - 4, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    if (write(1, line, strlen(line)) < 0) _exit(98);
}

void load() {
    if (!strcmp(library, "linked")) {
        runtime = reinterpret_cast<Runtime *(*)()>(dlsym(RTLD_DEFAULT, "standin"))();
        return;
    }
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(97);
    }
    runtime = reinterpret_cast<Runtime *(*)()>(dlsym(handle, "standin"))();
}

AllocatorImpl *allocator(int device) { return runtime->allocator(devices.at(device)); }

BufferType type_of(const std::string &name) {
    for (size_t n = 0; n < 4; n++) {
        if (name == NAMES[n]) return TYPES[n];
    }
    fprintf(stderr, "no space %s\n", name.c_str());
    exit(96);
}

// The exact figures of every open allocator and space, in the format of `figures`.
std::multiset<std::string> truth() {
    std::multiset<std::string> all;
    for (auto [number, device] : devices) {
        AllocatorImpl *allocator = runtime->allocator(device);
        for (size_t space = 0; space < 4; space++) {
            uint64_t banks = runtime->banks(allocator, TYPES[space]);
            Statistics own = runtime->truth(allocator, TYPES[space]);
            if (banks == 0) continue;
            std::ostringstream line;
            line << NAMES[space] << ' ' << banks << ' ' << own.allocated * banks << ' ' << own.free * banks << ' '
                 << own.largest_free;
            all.insert(line.str());
        }
    }
    return all;
}

std::string joined(const std::multiset<std::string> &lines) {
    std::string all;
    for (const std::string &line : lines) all += (all.empty() ? "" : ";") + line;
    return all;
}

Plan plan(std::istream &in) {
    Plan plan;
    std::string space, word;
    in >> space >> plan.page >> plan.pages;
    plan.type = type_of(space);
    // `on X0 Y0 X1 Y1 CORES ORIENTATION`, repeated: the ranges of the grid.
    while (in >> word) {
        plan.per_core |= word == "percore";
        plan.semaphore |= word == "semaphore";
        plan.of_mesh |= word == "semaphore" || word == "raw" || word == "tensor";
        if (word == "tensor") {
            plan.tensor.emplace();
            uint32_t dimension;
            while (in >> dimension) plan.tensor->push_back(dimension);
            in.clear();
        }
        if (word != "on") continue;
        uint32_t cores;
        if (!plan.shards) plan.shards = ShardSpecBuffer{};
        CoreRange range;
        in >> range.from.x >> range.from.y >> range.to.x >> range.to.y >> cores >> plan.shards->orientation;
        plan.shards->grid.ranges.push_back(range);
        plan.cores = cores;
    }
    return plan;
}

// `KIND [ADDRESS or NAME] BYTES X0 Y0 X1 Y1`, repeated: the parts of a program; `and X0 Y0 X1 Y1`: another range of the last one.
ProgramPlan program_plan(std::istream &in) {
    ProgramPlan plan;
    std::string word;
    auto read_range = [&] {
        CoreRange range;
        in >> range.from.x >> range.from.y >> range.to.x >> range.to.y;
        plan.parts.back().cores.ranges.push_back(range);
    };
    while (in >> word) {
        if (word == "config") {
            in >> plan.config;
            continue;
        }
        if (word != "and") {
            PartPlan &part = plan.parts.emplace_back();
            part.kind = word == "cb"       ? PartPlan::CB
                        : word == "view"   ? PartPlan::VIEW
                        : word == "dfb"    ? PartPlan::DFB
                        : word == "borrow" ? PartPlan::BORROWING
                        : word == "pad"    ? PartPlan::PAD
                                           : PartPlan::KERNEL;
            part.computes = word == "compute";
            if (part.kind == PartPlan::VIEW || part.kind == PartPlan::BORROWING) in >> part.address;
            part.kind == PartPlan::KERNEL ? in >> part.name : in >> part.bytes;
            if (part.kind == PartPlan::PAD) continue;
        }
        read_range();
    }
    return plan;
}

void drop_programs() {
    for (auto [number, workload] : workloads) runtime->programs()->drop(workload);
    for (auto [number, program] : programs) runtime->programs()->drop(program);
    workloads.clear();
    programs.clear();
}

// Runs a command about programs. Returns false if it is none.
bool run_program_command(const std::string &verb, std::istream &in) {
    Programs *to = runtime->programs();
    std::string word;
    int number = 0, first = 0, last = 0, other = 0;
    uint32_t bytes = 0;
    std::string what = "fine";
    if (verb == "program" || verb == "fabric" || verb == "fabric_before" || verb == "dispatch") {
        auto maker = verb == "fabric"          ? Programs::FABRIC
                     : verb == "fabric_before" ? Programs::FABRIC_BEFORE
                     : verb == "dispatch"      ? Programs::DISPATCH
                                               : Programs::WORKLOAD;
        IDevice *device = nullptr;
        if (maker != Programs::WORKLOAD && in >> number && number) device = devices.at(number);
        ProgramPlan it = program_plan(in);
        Program *made = nullptr;
        what = thrown([&] { made = to->make(it, maker, device); });
        if (made) programs[++numbers] = made, what = std::to_string(numbers);
    } else if (verb == "workload") {
        // First chip, last chip and program, repeated.
        workloads[++numbers] = to->make_workload();
        while (in >> first >> last >> number) {
            to->add(workloads[numbers], first, last, number ? programs.at(number) : nullptr);
        }
        what = std::to_string(numbers);
    } else if (verb == "compile" || verb == "enqueue") {
        in >> number >> other;
        if (verb == "enqueue") in >> first;
        what = thrown([&] {
            verb == "compile" ? to->compile(devices.at(number), workloads.at(other))
                              : to->enqueue(devices.at(number), first, workloads.at(other));
        });
    } else if (verb == "finalize") {
        in >> number >> other;
        what = thrown([&] { to->finalize(devices.at(number), other ? programs.at(other) : nullptr); });
    } else if (verb == "move") {
        in >> number >> bytes;
        to->move_views(programs.at(number), bytes);
    } else if (verb == "resize") {
        in >> word >> number;
        if (word == "cb" && in >> bytes) {
            to->resize_cbs(programs.at(number), bytes);
        } else {
            to->resize_dfbs(programs.at(number), in >> bytes ? std::optional(bytes) : std::nullopt);
        }
    } else if (verb == "drop") {
        while (in >> number) {
            if (programs.contains(number)) to->drop(programs.at(number));
            if (workloads.contains(number)) to->drop(workloads.at(number));
            programs.erase(number);
            workloads.erase(number);
        }
    } else if (verb == "begin" || verb == "end" || verb == "replay" || verb == "release") {
        auto step = verb == "begin"    ? Programs::BEGIN
                    : verb == "end"    ? Programs::END
                    : verb == "replay" ? Programs::REPLAY
                                       : Programs::RELEASE;
        in >> number >> other >> first;
        what = thrown([&] { to->trace(step, devices.at(number), static_cast<uint8_t>(first), other); });
    } else if (verb == "manage") {
        in >> number >> first;
        runtime->manage(devices.at(number), first != 0);
    } else if (verb == "many") {
        in >> number >> first >> last >> other;
        to->many(devices.at(number), first, last, other != 0);
    } else if (verb == "garbage") {
        static std::set<std::string> names;
        in >> word;
        runtime->misbehaviour().garbage = names.insert(word).first->c_str();
    } else if (verb == "reuse" || verb == "slow") {
        in >> number;
        (verb == "slow" ? runtime->misbehaviour().slow : runtime->misbehaviour().reuse) = number != 0;
    } else if (verb == "unplaced") {
        what = std::to_string(runtime->misbehaviour().unplaced);
    } else {
        return false;
    }
    answer("%s", what.c_str());
    return true;
}

int spawn(bool raw) { return raw ? static_cast<int>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : fork(); }

void close_all() {
    drop_programs();
    for (auto [number, held] : buffers) runtime->destroy(held.buffer, false);
    buffers.clear();
    for (auto [number, device] : devices) runtime->close(device);
    devices.clear();
}

// Closes all devices as the runtime does: in a destructor that was registered before anything was tracked.
bool closes_at_exit;
struct Closer {
    ~Closer() {
        if (closes_at_exit) close_all();
    }
} closer;

// Loads the library, uses it, and unloads it.
void reload(int count) {
    close_all();
    for (int n = 0; n < count; n++) {
        dlclose(handle);
        load();
        if (n % 3 == 0) continue;
        IDevice *device = runtime->open_mesh(n % 8, 2, 0);
        runtime->destroy(runtime->create(device, dram_plan(4096, 24)), true);
        runtime->close(device);
    }
}

void run_command(const std::string &line);

void run_on_other_stack(const std::string &line) {
    static std::vector<char> stack(1 << 20);
    static std::string command;
    static ucontext_t here, there;
    command = line;
    getcontext(&there);
    there.uc_stack = {stack.data(), 0, stack.size()};
    there.uc_link = &here;
    makecontext(&there, [] { run_command(command); }, 0);
    swapcontext(&here, &there);
}

void run_command(const std::string &line) {
    std::istringstream in(line);
    std::string verb, word;
    in >> verb;
    int number = 0, count = 0, more = 0;
    uint64_t bytes = 0, address = 0;
    if (verb == "mesh") {
        in >> number >> count >> bytes;
        devices[++numbers] = runtime->open_mesh(number, count, bytes);
        answer("%d", numbers);
    } else if (verb == "device") {
        in >> number;
        devices[++numbers] = runtime->open_device(number);
        answer("%d", numbers);
    } else if (verb == "close") {
        in >> number;
        for (auto it = buffers.begin(); it != buffers.end();) {
            if (it->second.device == number) runtime->destroy(it->second.buffer, false);
            it = it->second.device == number ? buffers.erase(it) : std::next(it);
        }
        runtime->close(devices.at(number));
        devices.erase(number);
        answer("closed");
    } else if (verb == "alloc") {
        in >> number;
        Buffer *made = nullptr;
        Plan it = plan(in);
        std::string what = thrown([&] { made = runtime->create(devices.at(number), it); });
        if (made == nullptr) return answer("%s", what.c_str());
        buffers[++numbers] = {number, made};
        answer("%d %lu", numbers, made->address_);
    } else if (verb == "coroutine") {
        // The rest of the line is a command that runs on a stack which is not the thread's.
        std::getline(in, word);
        run_on_other_stack(word);
    } else if (verb == "free") {
        in >> number;
        std::string what = thrown([&] {
            runtime->destroy(buffers.at(number).buffer, true);
            buffers.erase(number);
        });
        answer("%s", what.c_str());
    } else if (verb == "bulk" || verb == "clear") {
        in >> number;
        runtime->bulk(allocator(number), verb == "clear");
        answer("done");
    } else if (verb == "mirror") {
        in >> number >> address >> bytes;
        runtime->mirror(allocator(number), address, bytes);
        answer("done");
    } else if (verb == "override") {
        in >> number;
        AllocatorState state;
        while (in >> word >> address >> bytes) state.regions[type_of(word)].push_back({address, bytes});
        runtime->override_state(allocator(number), state);
        answer("done");
    } else if (verb == "shrink") {
        in >> number >> word >> bytes;
        std::string what = thrown([&] { runtime->shrink(allocator(number), type_of(word), bytes); });
        answer("%s", what.c_str());
    } else if (verb == "next") {
        // The next allocation or free fails.
        in >> more >> count >> number;
        runtime->next() = {Failure::Kind(more), Failure::When(count), number};
        answer("set");
    } else if (verb == "throwing") {
        static std::set<std::string> names;
        in >> word;
        runtime->misbehaviour().throwing = names.insert(word).first->c_str();
        answer("set");
    } else if (verb == "refuse") {
        static std::set<std::string> texts;
        std::string text;
        in >> word;
        std::getline(in >> std::ws, text);
        runtime->misbehaviour().refusal = texts.insert(text).first->c_str();
        runtime->misbehaviour().refusing = texts.insert(word).first->c_str();
        answer("set");
    } else if (verb == "nonsense" || verb == "torn" || verb == "huge") {
        in >> number;
        Misbehaviour &requested = runtime->misbehaviour();
        (verb == "torn" ? requested.torn : verb == "huge" ? requested.huge : requested.nonsense) = number != 0;
        answer("set");
    } else if (verb == "truth") {
        answer("%s", joined(truth()).c_str());
    } else if (verb == "compare") {
        // Compares exact figures with the agent's.
        auto own = joined(truth()), theirs = joined(figures());
        own == theirs ? answer("equal") : answer("%s differs from %s", own.c_str(), theirs.c_str());
    } else if (verb == "queries") {
        answer("%lu", runtime->misbehaviour().queries.load());
    } else if (verb == "threads") {
        in >> number >> count >> more;
        answer("%d", threads(runtime, devices.at(number), count, more));
    } else if (verb == "storm") {
        in >> count >> more;
        storm(runtime, count, more);
        answer("over");
    } else if (verb == "crowd") {
        in >> count >> more;
        crowd(runtime, count, more != 0);
        answer("over");
    } else if (verb == "forks") {
        in >> count >> more;
        answer("%d", fork_while_busy(runtime, count, more != 0));
    } else if (verb == "lives") {
        in >> count >> more;
        run_program_lives(runtime, count, more);
        answer("over");
    } else if (verb == "reload") {
        in >> count;
        reload(count);
        answer("loaded");
    } else if (verb == "fork" || verb == "clone") {
        // The child runs the next commands, and the parent answers with its exit code.
        int child = spawn(verb == "clone");
        if (child == 0) return answer("%d", getpid());
        int code = wait_for(child);
        answer("%d", code);
    } else if (verb == "exec") {
        in >> word;
        int child = vfork();
        if (child == 0) {
            execlp(word.c_str(), word.c_str(), nullptr);
            _exit(99);
        }
        answer("%d", wait_for(child));
    } else if (verb == "thread_exit") {
        // A thread exits inside an allocation.
        in >> number;
        std::thread([=] {
            runtime->next() = {Failure::THREAD_EXIT, Failure::ALLOCATE, 0};
            runtime->create(devices.at(number), dram_plan(32, 32));
            abort();
        }).join();
        answer("joined");
    } else if (verb == "park") {
        // A thread stays inside an allocation until a number of statistics were queried; then the allocation fails.
        in >> number >> bytes;
        Misbehaviour &requested = runtime->misbehaviour();
        requested.parked = true;
        uint64_t until = requested.queries + bytes;
        std::thread([=] {
            runtime->next() = {Failure::PARK, Failure::ALLOCATE, 5};
            std::string what = thrown([&] { runtime->create(devices.at(number), dram_plan(32, 32)); });
            answer("%s", what.c_str());
        }).detach();
        std::thread([=, &requested] {
            while (requested.queries < until) std::this_thread::yield();
            requested.parked = false;
            requested.parked.notify_all();
        }).detach();
        while (requested.parking == 0) std::this_thread::yield();
        answer("parked");
    } else if (verb == "exit") {
        in >> number >> word;
        check_leaks = false;
        if (word == "_exit") _exit(number);
        if (word == "quick") quick_exit(number);
        if (word == "abort") abort();
        if (word == "main") pthread_exit(nullptr);
        if (word == "closed") close_all();
        closes_at_exit = word == "destructor";
        exit(number);
    } else if (verb == "hand") {
        // A library that reports by hand.
        in >> word;
        client_library = dlopen(word.c_str(), RTLD_NOW | RTLD_LOCAL);
        answer("%s", client_library ? "loaded" : dlerror());
    } else if (verb == "unload") {
        answer("%d", dlclose(client_library));
    } else if (verb == "hold" || verb == "unhold") {
        in >> number >> address;
        answer("%d", verb == "hold" ? client_function<int(int, uint64_t, unsigned, uint64_t)>("ttmem_report_allocation")(
                                          number, 4096, 0, address)
                                    : client_function<int(int, uint64_t)>("ttmem_report_deallocation")(number, address));
    } else if (verb == "track") {
        // What a library in this process says to the agent.
        in >> word;
        answer("%d", agent_function<int(const char *, size_t)>("ttmem_agent_set_track")(word.data(), word.size()));
    } else if (verb == "mark") {
        in >> word >> address;
        answer("%d", agent_function<int(const char *, size_t, const uint64_t *)>("ttmem_agent_mark")(
                         word.data(), word.size(), &address));
    } else if (verb == "is_enabled") {
        answer("%d", client_function<bool()>("ttmem_is_enabled")());
    } else if (!run_program_command(verb, in)) {
        fprintf(stderr, "what is %s?\n", line.c_str());
        exit(95);
    }
}

}  // namespace

int main(int, char **arguments) {
    library = arguments[1];
    load();
    // A line is read to its end and no further: a forked child reads the next one.
    std::string line;
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') {
            line += byte;
            continue;
        }
        run_command(line);
        line.clear();
    }
    close_all();
    return 0;
}
