// A C++ program that uses the runtime without Python: it opens a chip, allocates some L1 and prints its allocator's statistics.
// The wheel has no headers, so what is used of it is declared here.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <iostream>
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

struct Statistics {
    size_t allocatable, allocated, free, largest_free;
};

class Allocator {
public:
    Statistics get_statistics(const BufferType &type) const;
    uint32_t get_num_banks(const BufferType &type) const;
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
    const std::unique_ptr<Allocator> &allocator() const;
    bool close();
};
}  // namespace distributed

GlobalSemaphore CreateGlobalSemaphore(distributed::MeshDevice &device, CoreRangeSet cores, uint32_t value, BufferType type);
}  // namespace tt_metal
}  // namespace tt

using namespace tt::tt_metal;

int main() {
    std::string line;
    std::getline(std::cin, line);
    auto device = distributed::MeshDevice::create_unit_mesh(0, 0, 0, 1, DispatchCoreConfig{}, {}, 0);
    std::printf("puppet: {\"ok\": 0}\n");
    std::fflush(stdout);
    std::getline(std::cin, line);
    {
        auto one = CreateGlobalSemaphore(*device, CoreRangeSet(CoreRange{{0, 0}, {3, 3}}), 0, BufferType::L1);
        auto other = CreateGlobalSemaphore(*device, CoreRangeSet(CoreRange{{0, 0}, {0, 0}}), 0, BufferType::L1);
        auto &allocator = *device->allocator();
        auto bytes = allocator.get_statistics(BufferType::L1).allocated * allocator.get_num_banks(BufferType::L1);
        std::printf("puppet: {\"ok\": %zu}\n", bytes);
        std::fflush(stdout);
        // Until the input is closed.
        while (std::getline(std::cin, line)) {
        }
    }
    device->close();
    return 0;
}
