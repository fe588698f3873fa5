// A C++ program that allocates with the runtime of a wheel, and prints the stacks that `backtrace()` sees meanwhile, in an operator that
// the runtime calls. The wheel has no headers, so what is used of it is declared here.

#include <dlfcn.h>
#include <execinfo.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace tt {
struct xy_pair {
    size_t x, y;
};

namespace tt_metal {
enum class BufferType : int { DRAM, L1 };

struct DispatchCoreConfig {
    char unset[64] = {};
};

struct CoreRange {
    xy_pair from, to;
};

class CoreRangeSet {
    std::vector<CoreRange> ranges;

public:
    CoreRangeSet(const CoreRange &range);
    CoreRangeSet(const CoreRangeSet &other);
};

class GlobalSemaphore {
    char inside[64];

public:
    ~GlobalSemaphore();
};

namespace distributed {
class MeshDevice {
public:
    static std::shared_ptr<MeshDevice> create_unit_mesh(int chip, size_t l1_small, size_t trace, size_t queues,
        const DispatchCoreConfig &config, std::span<const uint32_t> remap, size_t worker_l1);
    bool close();
};
}  // namespace distributed

GlobalSemaphore CreateGlobalSemaphore(distributed::MeshDevice &device, CoreRangeSet cores, uint32_t value, BufferType type);
}  // namespace tt_metal
}  // namespace tt

using namespace tt::tt_metal;

namespace {

constexpr int MOST = 128;
struct Stack {
    void *frames[MOST];
    int len;
};
Stack stacks[256];
int count;
thread_local bool is_watching;

// Runs in the runtime's calls of `operator new`.
void watch() {
    if (!is_watching || count == 256) return;
    is_watching = false;
    stacks[count].len = backtrace(stacks[count].frames, MOST);
    count++;
    is_watching = true;
}

std::shared_ptr<distributed::MeshDevice> device;
std::vector<std::unique_ptr<GlobalSemaphore>> taken;

bool is_agent(const Dl_info &info) { return std::strstr(info.dli_fname, "libttmem_agent") != nullptr; }

// The stacks that an allocation of the agent had, outside of its innermost hook and without its other frames.
std::string print() {
    std::set<std::string> all;
    for (int n = 0; n < count; n++) {
        std::string text;
        bool is_outside = false;
        for (int at = 0; at < stacks[n].len; at++) {
            Dl_info info{};
            auto address = static_cast<char *>(stacks[n].frames[at]) - 1;
            if (dladdr(address, &info) == 0) continue;
            if (is_agent(info)) {
                is_outside = true;
            } else if (is_outside) {
                std::string path = info.dli_fname;
                auto offset = address - static_cast<char *>(info.dli_fbase);
                text += (text.empty() ? "\"" : " ") + path.substr(path.rfind('/') + 1) + "+" + std::to_string(offset);
            }
        }
        if (!text.empty()) all.insert(text + "\"");
    }
    std::string joined;
    for (auto &text : all) joined += (joined.empty() ? "" : ", ") + text;
    return "[" + joined + "]";
}

// A frame whose stack is aligned to more than the ABI promises.
__attribute__((noinline)) void take_aligned(int cores) {
    alignas(128) volatile char scratch[256] = {};
    CoreRange range{{0, 0}, {static_cast<size_t>(cores), 0}};
    is_watching = true;
    // It is never copied: that has another constructor in the runtime.
    auto made = new GlobalSemaphore(CreateGlobalSemaphore(*device, CoreRangeSet(range), 0, BufferType::L1));  // allocates
    is_watching = false;
    taken.emplace_back(made);
    scratch[0] = 1;
}

__attribute__((noinline)) int take_below(int calls, int cores) {
    if (calls == 0) return take_aligned(cores), 0;
    // The stack of each call has another size.
    auto room = static_cast<volatile char *>(__builtin_alloca(16 * calls));
    room[0] = 1;
    return take_below(calls - 1, cores) + room[0];
}

}  // namespace

void *operator new(size_t bytes) {
    watch();
    void *memory = std::malloc(bytes);
    return memory ? memory : throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

int main() {
    void *warm_up[4];
    backtrace(warm_up, 4);
    taken.reserve(64);
    std::string line;
    std::getline(std::cin, line);
    device = distributed::MeshDevice::create_unit_mesh(0, 0, 0, 1, DispatchCoreConfig{}, {}, 0);
    std::printf("puppet: {\"ok\": 0}\n");
    std::fflush(stdout);
    // Each line says under how many calls to allocate, and whether in a thread.
    while (std::getline(std::cin, line)) {
        line.erase(0, line.find_first_of("0123456789"));
        int calls = std::atoi(line.c_str());
        count = 0;
        if (line.find("thread") == std::string::npos) {
            take_below(calls, 0);
        } else {
            std::thread(take_below, calls, 1).join();
        }
        std::printf("puppet: {\"ok\": %s}\n", print().c_str());
        std::fflush(stdout);
    }
    taken.clear();
    device->close();
    return 0;
}
