// ttmem.hpp alone. At each stop the test reads what is published.
#include <ttmem.hpp>

#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness.hpp"

using Client = ttmem::AllocationClient;
using ttmem::Allocation;
using ttmem::BufferType;
using ttmem::Error;

namespace {

// TT-Metal's enum, with values that are no memory.
enum class MetalBufferType { DRAM, L1, SYSTEM_MEMORY, L1_SMALL, TRACE, NEGATIVE = -1, LARGE = 256 };
enum Plain : unsigned char { plain_trace = 4 };

void reports() {
    CHECK(Client::is_enabled() && ttmem::is_enabled());
    CHECK(std::strlen(ttmem::version()) > 0);
    CHECK(Client::report_allocation(0, 1000, 0, 0x1000).ok());
    CHECK(Client::report_allocation(0, 2000, BufferType::l1, 0x1000).ok());
    CHECK(Client::report_allocation(1, 3000, 0x2000, MetalBufferType::L1_SMALL).ok());
    CHECK(Client::report_allocation(1, 4000, MetalBufferType::SYSTEM_MEMORY, 0x3000).ok());
    CHECK(Client::report_allocation(1, 5000, plain_trace, 0x4000).ok());
    CHECK(Client::report_cb_allocation(1, 600, 0x6000).ok());
    CHECK(Client::report_kernel_load(1, 700, 70).ok());
    CHECK(Client::report_kernel_load(1, 800, 80, ttmem::KernelType::dispatch).ok());
    CHECK(Client::report_kernel_load(1, 900, 90, 1).ok());
    stop("reports");
    CHECK(Client::report_deallocation(0, 0x1000).ok());
    CHECK(Client::report_deallocation(0, 0x1000).ok());
    for (const std::uint64_t address : {0x2000u, 0x3000u, 0x4000u}) {
        CHECK(Client::report_deallocation(1, address).ok());
    }
    CHECK(Client::report_cb_deallocation(1, 600, 0x6000).ok());
    CHECK(Client::report_kernel_unload(1, 70).ok());
    CHECK(Client::report_kernel_unload(1, 800, 80).ok());
    CHECK(Client::report_kernel_unload(1, 12345, 90).ok());
    stop("nothing");
}

void mistakes() {
    CHECK(Client::report_allocation(0, 100, 0, 0x1000));
    CHECK(Client::report_allocation(0, 0, 0, 0x2000).error() == Error::zero_size);
    CHECK(Client::report_allocation(0, ~0ull, 0, 0x2000).error() == Error::too_large);
    CHECK(Client::report_allocation(0, 100, 0, ~0ull).error() == Error::beyond_addresses);
    CHECK(Client::report_allocation(0, 100, 5, 0x2000).error() == Error::wrong_space);
    // An address where the type should be.
    CHECK(Client::report_allocation(0, 100, 0x10000u, 1).error() == Error::wrong_space);
    CHECK(Client::report_allocation(0, 100, MetalBufferType::NEGATIVE, 0x2000).error() == Error::wrong_space);
    CHECK(Client::report_allocation(0, 100, MetalBufferType::LARGE, 0x2000).error() == Error::wrong_space);
    CHECK(Client::report_allocation(-1, 100, 0, 0x2000).error() == Error::unknown_chip);
    CHECK(Client::report_allocation(1 << 20, 100, 0, 0x2000).error() == Error::unknown_chip);
    CHECK(Client::report_deallocation(0, 0x9000).error() == Error::unknown_free);
    CHECK(Client::report_allocation(0, 100, 0, 0x1000).error() == Error::still_held);
    CHECK(Client::report_allocation(0, 200, 0, 0x1000).error() == Error::replaced);
    CHECK(Client::report_deallocation(0, 0x1000).ok());
    CHECK(Client::report_deallocation(0, 0x1000).error() == Error::double_free);
    CHECK(Client::report_cb_deallocation(0, 1, 0x1000).error() == Error::unknown_free);
    CHECK(Client::report_kernel_unload(0, 7).error() == Error::unknown_free);
    CHECK(Client::report_allocation(ttmem::Devices(nullptr, 0), 100, 0, 1).error() == Error::unknown_chip);
    CHECK(Client::report_allocation(ttmem::Devices(nullptr, 4), 100, 0, 1).error() == Error::null);
    CHECK(Client::report_allocation({0, -1}, 100, 0, 1).error() == Error::unknown_chip);
    CHECK(!ttmem::define_devices({-5, 2}));
    CHECK(std::strcmp(Client::report_deallocation(0, 0x1000).text(), "double free") == 0);
    CHECK(std::strcmp(ttmem::text(Error::none), "no error") == 0);
    // Ambiguous, since several devices were reported.
    CHECK(Client::report_deallocation(0x1000).error() == Error::unknown_chip);
    stop("nothing");
}

void meshes() {
    const std::vector<int> devices = {3, 1, 2};
    const std::array<std::int32_t, 3> same = {1, 2, 3};
    const int again[] = {2, 3, 1};
    CHECK(Client::report_allocation(devices, 1 << 20, BufferType::dram, 0x100000).ok());
    CHECK(Client::report_allocation({1, 2, 3}, 4096, 0x8000, BufferType::l1).ok());
    CHECK(Client::report_cb_allocation(same, 2048, 0x1a000).ok());
    CHECK(Client::report_kernel_load(again, 512, 5, ttmem::KernelType::fabric).ok());
    stop("mesh");
    CHECK(ttmem::define_devices(devices).number() == ttmem::define_devices(again).number());
    CHECK(Client::report_deallocation(again, 0x100000).ok());
    CHECK(Client::report_deallocation(devices, 0x8000).ok());
    CHECK(Client::report_cb_deallocation(devices, 2048, 0x1a000).ok());
    CHECK(Client::report_kernel_unload({3, 2, 1}, 512, 5).ok());
    CHECK(Client::report_kernel_unload({3, 2, 1}, 5).error() == Error::double_free);
    stop("nothing");
}

void owners() {
    Allocation empty;
    CHECK(!empty.is_held() && empty.reset().ok());
    Allocation first(0, 100, BufferType::dram, 0x1000);
    CHECK(first.is_held() && first.result().ok());
    Allocation second(std::move(first));
    CHECK(!first.is_held() && second.is_held());
    try {
        const Allocation third({0, 1}, 50, BufferType::l1, 0x2000);
        stop("owners");
        throw std::runtime_error("out of here");
    } catch (const std::runtime_error&) {
    }
    stop("one owner");
    std::vector<Allocation> many;
    for (std::uint64_t n = 0; n < 10; ++n) {
        many.emplace_back(0, 10, BufferType::dram, 0x10000 + n * 16);
    }
    // Frees the allocation that `second` had.
    second = std::move(many.front());
    CHECK(!many.front().is_held());
    stop("many owners");
    many.clear();
    const Allocation refused(0, 0, BufferType::dram, 0x9000);
    CHECK(!refused.is_held() && refused.result().error() == Error::zero_size);
    {
        Allocation given(0, 1, BufferType::dram, 0x9000);
        given.release();
    }
    CHECK(Client::report_deallocation(0, 0x9000).ok());
    CHECK(second.reset().ok() && second.reset().ok());
    stop("nothing");
}

void call_sites() {
    const std::uint32_t shape[] = {1, 32, 512};
    ttmem_call_site site{};
    site.file = "/home/me/model.cpp";
    site.line = 42;
    site.function = "Attention::load";
    site.op = "matmul";
    site.track = "decode";
    site.shape = shape;
    site.rank = 3;
    site.data_type = "bfloat16";
    site.tensor_layout = "tile";
    const int number = ttmem::define_call_site(site).number();
    CHECK(number > 0 && ttmem::define_call_site(site).number() == number);
    ttmem_buffer buffer{};
    buffer.allocator = ttmem::define_devices({0}).number();
    buffer.space = TTMEM_SPACE_DRAM;
    buffer.address = 0x1000;
    buffer.requested = 64;
    buffer.site = number;
    const Allocation weights(buffer);
    CHECK(weights.is_held());
    ttmem_call_site semaphore{};
    semaphore.purpose = TTMEM_PURPOSE_SEMAPHORE;
    buffer.address = 0x2000;
    buffer.site = ttmem::define_call_site(semaphore).number();
    const Allocation other(buffer);
    CHECK(ttmem::mark("warm").ok() && ttmem::mark("step", 12).ok());
    stop("call sites");
}

void ends() {
    Allocation before(0, 100, BufferType::dram, 0x1000);
    const int mesh = ttmem::define_devices({0, 1}).number();
    CHECK(mesh > 0);
    CHECK(ttmem::close().ok() && ttmem::close().ok());
    CHECK(!ttmem::is_enabled());
    CHECK(Client::report_allocation(0, 100, 0, 0x1000).ok());
    CHECK(Client::report_deallocation({0, 1}, 0x5000).ok());
    CHECK(Client::report_allocation({0, -1}, 100, 0, 1).error() == Error::unknown_chip);
    Allocation ignored(0, 100, BufferType::dram, 0x1000);
    CHECK(!ignored.is_held());
    CHECK(before.reset().ok());
    // Reports while disabled are ignored, and so are their frees.
    CHECK(ttmem::enable().ok() && ttmem::is_enabled());
    ignored.reset();
    CHECK(Client::report_allocation(5, 64, BufferType::l1, 0x40).ok());
    stop("again");
}

}  // namespace

int main() {
    CHECK(Client::report_allocation(0, 10, 1, 0x10).ok());
    CHECK(Client::report_deallocation(0x10).ok());
    reports();
    mistakes();
    meshes();
    owners();
    call_sites();
    ends();
}
