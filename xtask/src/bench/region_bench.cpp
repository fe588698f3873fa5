// region_bench: the cost of one memory event in the statistics region that stock tt-metal keeps in /dev/shm.
//
//   region_bench LIBTT_METAL_SO CHIPS EVENTS
//
// Loads the library of a published wheel and times its own record_allocation and record_deallocation, so that the
// comparison uses the shipped machine code.
// Prints one line of JSON. Exit codes: 0 measured and checked, 1 failed, 2 wrong usage, 3 a symbol is missing.
//
// No code of tt-metal is compiled in. The symbols are looked up by their mangled names, which also encode the
// parameter types: a release that changes a signature gives "missing symbol", never a call with wrong arguments.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// A member function is called as a plain function whose first argument is the object (x86-64 System V ABI).
using Construct = void (*)(void* self, uint64_t unique_id, int device_id, bool tracking_off, bool verbose);
using Destroy = void (*)(void* self);
using Record = void (*)(void* self, int pid, uint64_t bytes, uint8_t buffer_type, uint32_t chip_id);

Construct construct;
Destroy destroy;
Record record_alloc, record_free;

// The ids say "ttbe" in their upper half, which no real chip does; the pid keeps parallel runs apart.
constexpr uint64_t kIdBase = 0x7474626500000000;
constexpr uint64_t kMaxChips = 256, kWarmUp = 1000;

// Every allocation adds more than a deallocation subtracts. So the final sum is right only if each single call
// was recorded, and no subtraction is clamped to zero by the library.
constexpr uint64_t kAllocated = 4096, kFreed = 1024;
constexpr uint8_t kDram = 0;

// Region layout, version 3 (little endian). Only the DRAM figures are read.
constexpr uint32_t kRegionVersion = 3;
constexpr off_t kRegionSize = 8576, kVersion = 0, kUniqueId = 32, kTotalDram = 48;
constexpr off_t kFirstChip = 88, kFirstProcess = 856, kDramInEntry = 8;  // an entry begins with its chip id or pid

// The file that exists at this moment, for the signal handler.
char current_file[80];

void remove_file_and_die(int signal) {
    if (current_file[0] != '\0') unlink(current_file);
    raise(signal);  // SA_RESETHAND has restored the default action: the caller sees the true cause of death
}

struct Chip {
    // The object has 32 bytes in 0.81.1; the rest is for other releases. The number of cache lines of a whole Chip is not
    // even: a power of two would put all objects into the same cache set and spoil the timing.
    alignas(64) unsigned char object[512] = {};
    int fd = -1;
    uint32_t device_id = 0;
    bool constructed = false;

    Chip() = default;
    Chip(const Chip&) = delete;  // the library may keep the object's address
    ~Chip() {
        if (constructed) destroy(object);
        if (fd >= 0) close(fd);
    }

    template <typename T>
    T read_at(off_t offset) const {
        T value{};
        if (pread(fd, &value, sizeof value, offset) != ssize_t{sizeof value})
            throw std::runtime_error("cannot read the region");
        return value;
    }

    // Throws unless the device total, the chip's entry and this process's entry all hold this many bytes.
    void expect_dram(uint64_t bytes) const {
        auto same = [](const std::string& what, uint64_t found, uint64_t expected) {
            if (found == expected) return;
            throw std::runtime_error("the calls did not record: " + what + " is " + std::to_string(found) +
                                     ", expected " + std::to_string(expected));
        };
        same("total DRAM", read_at<uint64_t>(kTotalDram), bytes);
        same("chip id", read_at<uint32_t>(kFirstChip), device_id);
        same("chip DRAM", read_at<uint64_t>(kFirstChip + kDramInEntry), bytes);
        same("process id", read_at<uint32_t>(kFirstProcess), static_cast<uint64_t>(getpid()));
        same("process DRAM", read_at<uint64_t>(kFirstProcess + kDramInEntry), bytes);
    }

    void open(uint32_t number) {
        device_id = number;
        const uint64_t unique_id = kIdBase + (static_cast<uint64_t>(getpid()) << 8) + number;
        const std::string path = "/dev/shm/tt_device_" + std::to_string(unique_id) + "_memory";
        if (access(path.c_str(), F_OK) == 0) throw std::runtime_error(path + " exists already and is not ours");

        struct RemoveFile {  // on every way out, by exception too
            ~RemoveFile() { unlink(current_file), current_file[0] = '\0'; }
        } remove_file;
        std::snprintf(current_file, sizeof current_file, "%s", path.c_str());
        construct(object, unique_id, static_cast<int>(number), false, false);
        constructed = true;
        // The file lives only as long as this function: the library keeps its mapping and we keep a descriptor of
        // the same memory. A run killed while measuring leaves nothing behind, and no monitor shows invented chips.
        fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) throw std::runtime_error("the library made no " + path + ": " + std::strerror(errno));

        struct stat status {};
        if (fstat(fd, &status) != 0 || status.st_size != kRegionSize ||
            read_at<uint32_t>(kVersion) != kRegionVersion || read_at<uint64_t>(kUniqueId) != unique_id)
            throw std::runtime_error("the region is not in layout version 3 (8576 bytes)");
    }
};

static_assert(sizeof(Chip) % 64 == 0 && sizeof(Chip) / 64 % 2 == 1, "see the comment at Chip::object");

// Allocations and deallocations in turn, each recorded for one chip after the other, as the runtime does on a mesh.
void run(std::vector<Chip>& chips, uint64_t events) {
    const int pid = getpid();
    for (uint64_t event = 0; event < events; ++event) {
        const bool allocation = event % 2 == 0;
        const Record record = allocation ? record_alloc : record_free;
        const uint64_t bytes = allocation ? kAllocated : kFreed;
        for (Chip& chip : chips) record(chip.object, pid, bytes, kDram, chip.device_id);
    }
}

uint64_t dram_after(uint64_t events) { return (events - events / 2) * kAllocated - events / 2 * kFreed; }

uint64_t thread_cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) return;
    std::fprintf(stderr, "region_bench: missing symbol %s\n", name);
    std::exit(3);
}

bool number(const char* text, uint64_t most, uint64_t& value) {
    char* end = nullptr;
    errno = 0;
    value = std::strtoull(text, &end, 10);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' && value >= 1 && value <= most;
}

}  // namespace

int main(int argc, char** argv) try {
    uint64_t chip_count = 0, events = 0;
    if (argc != 4 || !number(argv[2], kMaxChips, chip_count) || !number(argv[3], 1000000000000, events)) {
        std::fprintf(stderr, "usage: region_bench LIBTT_METAL_SO CHIPS(1..256) EVENTS\n");
        return 2;
    }
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(library, "_ZN2tt8tt_metal25SharedMemoryStatsProviderC1Emibb", construct);
    find(library, "_ZN2tt8tt_metal25SharedMemoryStatsProviderD1Ev", destroy);
    find(library, "_ZN2tt8tt_metal25SharedMemoryStatsProvider17record_allocationEimNS0_13ShmBufferTypeEj", record_alloc);
    find(library, "_ZN2tt8tt_metal25SharedMemoryStatsProvider19record_deallocationEimNS0_13ShmBufferTypeEj", record_free);

    struct sigaction on_signal {};
    on_signal.sa_handler = remove_file_and_die;
    on_signal.sa_flags = SA_RESETHAND;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM, SIGHUP})
        sigaction(signal, &on_signal, nullptr);

    std::vector<Chip> chips(chip_count);
    for (uint32_t i = 0; i < chips.size(); ++i) chips[i].open(i);

    run(chips, kWarmUp);  // the first call for a process also looks up its name, once: not what an event costs
    for (const Chip& chip : chips) chip.expect_dram(dram_after(kWarmUp));
    const uint64_t start = thread_cpu_ns();
    run(chips, events);
    const double ns = static_cast<double>(thread_cpu_ns() - start);
    for (const Chip& chip : chips) chip.expect_dram(dram_after(kWarmUp) + dram_after(events));

    const double per_event = ns / static_cast<double>(events), per_call = per_event / static_cast<double>(chip_count);
    std::printf("{\"chips\":%ju,\"events\":%ju,\"ns_per_event\":%.1f,\"ns_per_call\":%.1f,\"checked\":true}\n",
                uintmax_t{chip_count}, uintmax_t{events}, per_event, per_call);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "region_bench: %s\n", error.what());
    return 1;
} catch (...) {
    std::fprintf(stderr, "region_bench: the library threw something that is no std::exception\n");
    return 1;
}
